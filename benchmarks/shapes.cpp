#include "benchmarks/shapes.h"

#include <c10/util/Exception.h>

namespace tpgm::benchmarks {
namespace {

std::vector<Shape> resnet50() {
  std::vector<Shape> shapes;
  const auto conv = [&](int64_t out, int64_t in, int64_t size) {
    shapes.insert(shapes.end(), {{out, in, size, size}, {out}, {out}});  // and its BatchNorm
  };
  conv(64, 3, 7);
  int64_t in = 64;
  const int64_t blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = 64 << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      conv(width, in, 1);
      conv(width, width, 3);
      conv(4 * width, width, 1);
      if (block == 0) {
        conv(4 * width, in, 1);
      }
      in = 4 * width;
    }
  }
  shapes.insert(shapes.end(), {{1000, in}, {1000}});
  return shapes;
}

std::vector<Shape> vit(int64_t width, int64_t depth, int64_t patch) {
  const auto tokens = (224 / patch) * (224 / patch) + 1;
  std::vector<Shape> shapes = {{1, 1, width}, {1, tokens, width}, {width, 3, patch, patch}, {width}};
  for (int64_t i = 0; i < depth; ++i) {
    shapes.insert(shapes.end(), {{width},
                                 {width},
                                 {3 * width, width},
                                 {3 * width},
                                 {width, width},
                                 {width},
                                 {width},
                                 {width},
                                 {4 * width, width},
                                 {4 * width},
                                 {width, 4 * width},
                                 {width}});
  }
  shapes.insert(shapes.end(), {{width}, {width}, {1000, width}, {1000}});
  return shapes;
}

}  // namespace

std::vector<std::string> model_names() { return {"resnet50", "vit-b-16", "vit-l-14"}; }

std::vector<Shape> model_shapes(const std::string& name) {
  if (name == "resnet50") {
    return resnet50();
  }
  if (name == "vit-b-16") {
    return vit(768, 12, 16);
  }
  TORCH_CHECK(name == "vit-l-14", "[bench] no shapes for model '", name, "'");
  return vit(1024, 24, 14);
}

}  // namespace tpgm::benchmarks
