// Torch's headers define CHECK; whoever comes second wins silently. Test files include this after everything else.
#pragma once
#undef CHECK
#include <catch2/catch.hpp>
