// tpgm-parity: what scripts/parity compares with the Python libraries. For developers; not installed.
#include <CLI/CLI.hpp>
#include <iostream>

#include "tests/weights/parity.h"
#include "tpgm/io/safetensors.h"

int main(int argc, char** argv) {
  CLI::App app("What our model computes from a checkpoint, under the checkpoint's names");
  std::string checkpoint, model, input, output, device = "cpu";
  int64_t steps = 0;
  app.add_option("--checkpoint", checkpoint)->required();
  app.add_option("--model", model)->required();
  app.add_option("--input", input, "safetensors with images, upstream, tokens, upstream_text")->required();
  app.add_option("--output", output, "safetensors")->required();
  app.add_option("--steps", steps, "of SGD");
  app.add_option("--device", device, "cpu or cuda");
  CLI11_PARSE(app, argc, argv);
  try {
    at::globalContext().setAllowTF32CuDNN(false);
    tpgm::testing::Parity parity(checkpoint, model, at::Device(device));
    tpgm::save_safetensors(parity.run(tpgm::SafetensorsFile(input).tensors(), steps), output);
  } catch (const c10::Error& error) {
    std::cerr << "tpgm-parity: " << error.what_without_backtrace() << "\n";
    return 1;
  }
  return 0;
}
