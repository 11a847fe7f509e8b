// A page with every kind of block, crowded figures and hostile names among them.
#pragma once

#include "tpgm/report/page.h"

namespace tpgm::test {

inline constexpr const char* kHostile = "<script>alert('x')</script>&\"\x01\xFF";

/// A square PNG with something on it, the same for the same seed.
std::string example_png(unsigned size, unsigned seed);

Plot example_scatter();       ///< 13 methods, some of them close together, with labels.
Plot example_curves();        ///< 14 lines of 3000 points.
HeatMap example_small_map();  ///< 9 columns, 6 rows, a cell of which is empty.
HeatMap example_large_map();  ///< 150 columns with long names.
Page example_page();

}  // namespace tpgm::test
