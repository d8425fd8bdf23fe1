// From changes to patches, for many chunks in one call (kernels/reference/encode.py is the contract).
#pragma once

#include "module.hpp"

void bind_encode(nb::module_ &module);
