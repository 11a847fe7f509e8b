// A folder for files, and what tests of models ask of texts.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/io/scratch.h"
#include "tests/support.h"
#include "tests/weights/goldens.h"
#include "tests/weights/parity.h"

namespace tpgm::testing {

class ModelFiles : public test::Scratch {
 protected:
  ModelFiles() { torch::manual_seed(0); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }
  static std::shared_ptr<Backbone> vit() {
    auto backbone = make_backbone(parse_model("vit:width=32,depth=2,heads=2,patch=8,image_size=32"));
    backbone->reset_parameters();
    return backbone;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

}  // namespace tpgm::testing
