// The digests of what pieces hold of each chunk.
#pragma once

#include "module.hpp"

void bind_digest_chunks(nb::module_ &module);
