// Heads and class names, for commands that run a classifier.
#include "tpgm/study/given_classifier.h"

#include <fmt/format.h>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/train/model_setup.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {

GivenClassifier open_classifier(const std::string& model, const std::string& checkpoint,
                                const std::string& head, const Say& say, HeadUse use) try {
  const auto note = [&](const std::string& text) {
    if (say) say(fmt::format("'{}': {}", checkpoint.empty() ? model : checkpoint, text));
  };
  GivenClassifier given;
  LoadOptions options;
  if (model.empty() && !checkpoint.empty()) options.script(script_of_run(checkpoint));
  if (use == HeadUse::kNever) {
    options.head(Head::kFresh).classifier(ClassifierOptions().num_classes(1));
  } else if (!head.empty()) {
    if (use == HeadUse::kWhereNone && !checkpoint.empty() && has_head(model, checkpoint, options.script())) {
      note("has a head of its own, so `head` is not used");
    } else {
      options.head(Head::kZeroShot).head_file(head);
      given.head = head;
    }
  }
  given.loaded = load_classifier(model, checkpoint, options);
  for (const auto& text : given.loaded.notes) note(text);
  if (use != HeadUse::kNever && !checkpoint.empty() && given.head.empty()) {
    given.classes = keys::kClasses.of(given.loaded.checkpoint->metadata());
    const int64_t outputs = given.loaded.model->num_classes();
    TORCH_CHECK(given.classes.empty() || static_cast<int64_t>(given.classes.size()) == outputs, "'",
                checkpoint, "' says that it knows ", given.classes.size(), " classes, and its head has ",
                outputs);
  }
  return given;
} catch (...) {
  rethrow_from("open_classifier");
}

std::vector<std::string> classes_for(const GivenClassifier& given, const std::string& class_list,
                                     const Dataset& data, const Say& note) try {
  const int64_t outputs = given.loaded.model->num_classes();
  if (!class_list.empty()) {
    auto classes = load_class_list(class_list);
    TORCH_CHECK(static_cast<int64_t>(classes.size()) == outputs, "the head has ", outputs,
                " classes, `class-list` '", class_list, "' ", classes.size());
    return classes;
  }
  if (!given.classes.empty()) return given.classes;
  TORCH_CHECK(!data.classes().empty(), "'", data.where(),
              "' has images without labels; give class folders, a list or labeled shards");
  if (!given.head.empty()) {
    if (auto classes = classes_by_folder(data, given.loaded.class_names)) return *classes;
    if (note) note(kNoClassByFolder);
  }
  TORCH_CHECK(static_cast<int64_t>(data.classes().size()) == outputs, "the head has ", outputs, " classes, '",
              data.where(), "' ", data.classes().size(),
              ": say which is which with `class-list`, the head's classes in order, one a line by their "
              "folders' names, or a folder that has them all");
  return data.classes();
} catch (...) {
  rethrow_from("classes_for");
}

}  // namespace tpgm
