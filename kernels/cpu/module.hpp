// What every file that adds functions to the extension module includes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "pieces.hpp"
#include "table.hpp"

namespace nb = nanobind;
