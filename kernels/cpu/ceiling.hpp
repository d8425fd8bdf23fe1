// How fast this machine reads memory: what the other kernels are measured against.
#pragma once

#include <nanobind/nanobind.h>

namespace deltastore {

void bind_ceiling(nanobind::module_ &module);

}  // namespace deltastore
