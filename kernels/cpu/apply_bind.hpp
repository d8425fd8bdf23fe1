// The Python face of the kernels that take patches apart, apply them, and move staged bits.
#pragma once

#include "module.hpp"

namespace deltastore {

void bind_apply(nb::module_ &module);

}  // namespace deltastore
