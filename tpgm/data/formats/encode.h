// Encodes images as PNG and JPEG.
#pragma once

#include <string>

#include "tpgm/data/image.h"

namespace tpgm {

/// A PNG with 8 bits per channel at zlib's highest compression. The same image gives the same bytes with the
/// same version of zlib.
std::string encode_png(const Image& image);

/// A baseline JPEG with 4:2:0 chroma subsampling. `quality` is from 1 to 100.
std::string encode_jpeg(const Image& image, int quality);

}  // namespace tpgm
