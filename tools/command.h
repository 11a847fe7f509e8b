// A subcommand of `tpgm`: its name, a line of help, and how it adds its options.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>

#include "tpgm/base/error_text.h"
#include "tpgm/base/text.h"

namespace tpgm::tools {

/// Does the work and returns the exit status: 0 ok, 1 failed.
using Run = std::function<int()>;

/// Runs the command; turns exceptions, and a stdout that could not be written, into a line on stderr and the
/// exit status, which is interrupt_status() if it failed after a signal. `name` is the command line after
/// `tpgm`: "data split".
int run(const std::string& name, const Run& command);

struct Command {
  const char* name;
  const char* summary;
  Run (*configure)(CLI::App& app);  // adds options, whose values live as long as the Run
};

/// A mistake in the command line that only shows when the command runs: exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The text with keys of options in backticks, as the library writes them (`head-lr`), as flags (--head-lr).
std::string with_flags(const std::string& text);
/// Prints with_flags(text) to stderr, with question marks for characters that control a terminal (except line breaks).
/// Never fails, not even if stderr is closed.
void say(const std::string& text);
/// say() of one line, "tpgm COMMAND: TEXT": line breaks in the text, such as those of names, are question marks, too.
/// Lists of indented lines stay as they are.
void say_line(const std::string& command, std::string text);

/// Turns a parser that throws std::invalid_argument or c10::Error into a check of the command line.
template <typename Parse>
CLI::Validator parses(const Parse& parse) {
  return CLI::Validator(
      [parse](std::string& text) {
        try {
          parse(text);
        } catch (const c10::Error& error) {
          return error_text(error);
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
        return std::string();
      },
      "");
}

/// The same for what from_text() reads.
template <typename T>
CLI::Validator parses_as() {
  return parses(parsed<T>);
}

Run configure_bench(CLI::App& app);
Run configure_compare(CLI::App& app);
Run configure_convert(CLI::App& app);
Run configure_data(CLI::App& app);
Run configure_demo(CLI::App& app);
Run configure_eval(CLI::App& app);
Run configure_inspect(CLI::App& app);
Run configure_list(CLI::App& app);
Run configure_predict(CLI::App& app);
Run configure_pretrain(CLI::App& app);
Run configure_project(CLI::App& app);
Run configure_report(CLI::App& app);
Run configure_reproduce(CLI::App& app);
Run configure_theory(CLI::App& app);
Run configure_train(CLI::App& app);
Run configure_wise(CLI::App& app);
Run configure_zeroshot(CLI::App& app);

}  // namespace tpgm::tools
