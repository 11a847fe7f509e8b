// tpgm-example-report FILE: writes the example's page, for the browser test.
#include <fstream>
#include <iostream>

#include "tests/report/example.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tpgm-example-report FILE\n";
    return 2;
  }
  std::ofstream file(argv[1], std::ios::binary);
  file << tpgm::to_html(tpgm::test::example_page());
  return file.flush() ? 0 : 1;
}
