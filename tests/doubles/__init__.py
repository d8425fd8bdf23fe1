"""Stand-ins that tests of several areas share: small models, faulty stores, forged records."""
