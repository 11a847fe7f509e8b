// Data: a data set's domains, sets that share no image, and batches that are the same on every run.
//   example-5-data [DATA_SET] [TRAINING_DOMAIN]; by default the built-in glyphs. `tpgm data check` takes the
//   same data sets.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tpgm/tpgm.h>
#include <tpgm/train/image_setup.h>

int main(int argc, char** argv) try {
  const tpgm::Dataset data(argc > 1 ? argv[1] : TPGM_ASSETS "/glyphs.tar");
  const std::string domain = argc > 2 ? argv[2] : "sans";
  fmt::print("{} classes; {}\n", data.classes().size(), fmt::join(data.titles(), ", "));

  // Training, radius, selection and test data: the data set's own where it has them, else held out.
  const auto task = tpgm::make_task(data, {domain}, {domain}, tpgm::SplitOptions().seed(0));
  for (const auto& note : task.notes) fmt::print("{}\n", note);

  // The model says how its images are preprocessed: their size and channels, mean and std, and interpolation.
  const auto classes = static_cast<int64_t>(data.classes().size());
  const auto loaded = tpgm::load_classifier("", TPGM_ASSETS "/glyph-clip-resnet.safetensors",
                                            tpgm::LoadOptions()
                                                .head(tpgm::Head::kFresh)
                                                .classifier(tpgm::ClassifierOptions().num_classes(classes)));
  auto transforms = tpgm::image_transforms(loaded);

  // Training images are cropped at random; those of glyphs are small and keep most of themselves.
  const auto view = transforms.train.scale({0.7, 1}).hflip(0);
  const auto options = transforms.loader.batch_size(256).shuffle(true).cache(1 << 28);
  tpgm::Loader loader(task.train, view, tpgm::LoaderOptions(options).workers(2));
  loader.start(/*epoch=*/0);
  int64_t images = 0;
  at::Tensor last;
  while (auto batch = loader.next()) {
    images += batch->images.size(0);
    last = batch->images;
  }
  fmt::print("an epoch of {} batches, {} images\n", loader.batches(), images);

  // Another loader, with another number of threads, at the end of the epoch: the same bytes.
  tpgm::Loader other(task.train, view, tpgm::LoaderOptions(options).workers(1));
  other.start(/*epoch=*/0, /*first_batch=*/loader.batches() - 1);
  const bool same = other.next()->images.equal(last);
  fmt::print("the last batch is {}\n",
             same ? "the same with one worker, and without those before it" : "ANOTHER");
  return same && images == task.train.size() ? 0 : 1;
} catch (const c10::Error& error) {
  fmt::print(stderr, "{}\n", error.what_without_backtrace());
  return 1;
}
