// Images into PNG and JPEG.
#pragma once

#include <string>

#include "tpgm/data/image.h"

namespace tpgm {

/// 8 bits a channel, as small as zlib makes it; the same bytes for the same image and zlib.
std::string encode_png(const Image& image);

/// Baseline, 4:2:0 as cameras and the web have it; `quality` from 1 to 100.
std::string encode_jpeg(const Image& image, int quality);

}  // namespace tpgm
