"""AdamW steps taken back: what each weight was before the optimizer moved it."""
