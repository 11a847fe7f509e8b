// Batches: what is in them, that nothing but their number decides it, and what becomes of bad images.
#include "tpgm/data/loader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/data/formats/encoded_image.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using namespace test;

constexpr int64_t kSize = 12;

EvalViewOptions eval_options() { return EvalViewOptions().image_size(kSize); }
TrainViewOptions train_options(Decode decode = Decode::kFast) {
  return TrainViewOptions().image_size(kSize).decode(decode);
}
LoaderOptions options(int64_t batch_size = 4) { return LoaderOptions().batch_size(batch_size); }

// Writes images of three classes, in both formats and several sizes.
SampleSubset make_images(const fs::path& folder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto name = fmt::format("{:04}.{}", i, i % 3 == 0 ? "png" : "jpg");
    write_image(folder / fmt::format("c{}", i % 3) / name, static_cast<uint64_t>(i), 17 + i % 5, 15 + i % 7);
  }
  return all_of(std::make_shared<const Samples>(std::move(read_image_folder(folder).at(0))));
}

std::vector<Batch> rest(Loader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.next()) batches.push_back(*std::move(batch));
  return batches;
}

std::vector<Batch> epoch(Loader& loader, int64_t number, int64_t first_batch = 0) {
  loader.start(number, first_batch);
  return rest(loader);
}

std::vector<Batch> epoch(const SampleSubset& subset, const View& view, const LoaderOptions& options,
                         int64_t number = 0) {
  Loader loader(subset, view, options);
  return epoch(loader, number);
}

std::vector<int64_t> indices_of(const std::vector<Batch>& batches) {
  std::vector<int64_t> indices;
  for (const auto& batch : batches) indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
  return indices;
}

::testing::AssertionResult equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " batches against " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].indices != b[i].indices) return ::testing::AssertionFailure() << "other images in batch " << i;
    if (auto labels = same(a[i].labels, b[i].labels); !labels) return labels << " in labels of batch " << i;
    if (auto images = same(a[i].images, b[i].images); !images) return images << " in batch " << i;
  }
  return ::testing::AssertionSuccess();
}

// What torchvision's ToTensor and Normalize make of it, in torch's own arithmetic.
at::Tensor normalized(const Image& image, const LoaderOptions& options) {
  const auto bytes = torch::tensor(at::ArrayRef<uint8_t>(image.pixels), torch::kByte)
                         .view({image.height, image.width, 3})
                         .permute({2, 0, 1});
  const auto constants = [](const LoaderOptions::Triple& values) {
    return torch::tensor(at::ArrayRef<double>(values.data(), 3), torch::kFloat).view({3, 1, 1});
  };
  return bytes.to(torch::kFloat).div(255).sub(constants(options.mean())).div(constants(options.std()));
}

class LoaderTest : public test::Scratch {
 protected:
  SampleSubset images(int64_t count = 22) { return make_images(folder_ / "data", count); }
  void delete_images() { test::remove_folder(folder_ / "data"); }
};

TEST_F(LoaderTest, ABatchIsNormalizedImagesWithTheirLabels) {
  const auto subset = images();
  for (const auto& mean : {LoaderOptions().mean(), LoaderOptions::Triple{0.5, 0.1, 0}}) {
    const auto used = options(5).mean(mean);
    const auto batches = epoch(subset, eval_options(), used);
    ASSERT_EQ(batches.size(), 5u);
    for (const auto& batch : batches) {
      const auto count = static_cast<int64_t>(batch.indices.size());
      EXPECT_EQ(count, &batch == &batches.back() ? 2 : 5);
      EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{count, 3, kSize, kSize}));
      EXPECT_EQ(batch.images.scalar_type(), torch::kFloat);
      EXPECT_TRUE(batch.images.is_contiguous(torch::MemoryFormat::ChannelsLast));
      EXPECT_EQ(batch.labels.scalar_type(), torch::kLong);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t index = batch.indices[static_cast<size_t>(i)];
        const std::string bytes = subset.samples->read(index);
        EncodedImage encoded(bytes);
        EXPECT_TRUE(same(batch.images[i], normalized(eval_view(encoded, eval_options()), used)));
        EXPECT_EQ(batch.labels[i].item<int64_t>(), subset.samples->label(index));
      }
    }
    EXPECT_EQ(indices_of(batches), subset.indices);
  }
}

TEST_F(LoaderTest, ATrainingViewIsThatOfItsOwnRandomStream) {
  const auto subset = images(6);
  const auto batches = epoch(subset, train_options(), options(6).seed(3), 7);
  for (int64_t i = 0; i < 6; ++i) {
    const std::string bytes = subset.samples->read(i);
    EncodedImage encoded(bytes);
    Random random(3, 7, static_cast<uint64_t>(i));
    EXPECT_TRUE(
        same(batches[0].images[i], normalized(train_view(encoded, train_options(), random), options())));
  }
}

TEST_F(LoaderTest, OneChannelIsPillowsGray) {
  const auto subset = images(4);
  const auto used = options().channels(1).mean({0.1, 0.2, 0.6}).std({0.2, 0.3, 0.4});
  const auto batch = epoch(subset, eval_options(), used).at(0);
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{4, 1, kSize, kSize}));
  EXPECT_TRUE(batch.images.is_contiguous(torch::MemoryFormat::ChannelsLast));
  for (int64_t i = 0; i < 4; ++i) {
    const std::string bytes = subset.samples->read(i);
    EncodedImage encoded(bytes);
    const Image view = eval_view(encoded, eval_options());
    for (int64_t p = 0; p < kSize * kSize; ++p) {
      const uint8_t* rgb = view.pixels.data() + 3 * p;
      const int grey = (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
      ASSERT_EQ(batch.images[i].flatten()[p].item<float>(), (static_cast<float>(grey) / 255 - 0.3f) / 0.3f);
    }
  }
}

TEST_F(LoaderTest, WorkersAndQueueChangeNothing) {
  const auto subset = images();
  const std::vector<View> views = {eval_options(), train_options(), train_options(Decode::kExact)};
  for (const auto& view : views) {
    for (const bool shuffle : {false, true}) {
      const auto base = options().shuffle(shuffle).seed(5);
      const auto expected = epoch(subset, view, LoaderOptions(base).workers(1).queue(1), 2);
      for (const int64_t workers : {1, 2, 5, 16}) {
        for (const int64_t queue : {1, 2, 3, 8}) {
          EXPECT_TRUE(
              equal(epoch(subset, view, LoaderOptions(base).workers(workers).queue(queue), 2), expected))
              << workers << " workers, a queue of " << queue;
        }
      }
    }
  }
}

TEST_F(LoaderTest, ASlowCallerGetsTheSame) {
  const auto subset = images();
  Loader loader(subset, train_options(), options(2).queue(3).workers(4));
  const auto expected = epoch(loader, 0);
  loader.start(0);
  std::vector<Batch> slowly;
  while (auto batch = loader.next()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    slowly.push_back(*std::move(batch));
  }
  EXPECT_TRUE(equal(slowly, expected));
}

TEST_F(LoaderTest, AnEpochHasEveryImageOnceInAnOrderOfItsOwn) {
  const auto subset = images(50);
  Loader loader(subset, eval_options(), options().shuffle(true));
  std::set<std::vector<int64_t>> orders;
  for (int64_t number = 0; number < 5; ++number) {
    auto indices = indices_of(epoch(loader, number));
    orders.insert(indices);
    std::sort(indices.begin(), indices.end());
    EXPECT_EQ(indices, subset.indices);
  }
  EXPECT_EQ(orders.size(), 5u);
  orders.insert(indices_of(epoch(subset, eval_options(), options().shuffle(true).seed(1))));
  EXPECT_EQ(orders.size(), 6u);
  EXPECT_EQ(loader.batches(), 13);
}

TEST_F(LoaderTest, OnlyTrainingViewsChangeFromEpochToEpoch) {
  const auto subset = images();
  Loader eval(subset, eval_options(), options()), train(subset, train_options(), options());
  EXPECT_TRUE(equal(epoch(eval, 0), epoch(eval, 1)));
  const auto first = epoch(train, 0), second = epoch(train, 1);
  EXPECT_EQ(indices_of(first), indices_of(second));
  for (size_t i = 0; i < first.size(); ++i) EXPECT_FALSE(same(first[i].images, second[i].images));
  EXPECT_TRUE(equal(epoch(train, 0), first));
}

TEST_F(LoaderTest, ASubsetIsLoadedInItsOrder) {
  auto subset = images();
  subset.indices = {7, 3, 11, 0, 20};
  Loader loader(subset, train_options(), options(2));
  const auto some = epoch(loader, 4);
  EXPECT_EQ(indices_of(some), subset.indices);
  // An image looks the same whatever it is loaded with.
  const auto all = epoch(all_of(subset.samples), train_options(), options(1), 4);
  EXPECT_TRUE(same(some[1].images[0], all[11].images[0]));
  EXPECT_EQ(loader.subset().indices, subset.indices);
}

TEST_F(LoaderTest, AnEpochCanBeginInTheMiddleWithoutReadingWhatWasBefore) {
  const auto subset = images();
  for (const bool shuffle : {false, true}) {
    images();
    const auto used = options().shuffle(shuffle).workers(3);
    Loader loader(subset, train_options(), used);
    const auto whole = epoch(loader, 3);
    for (int64_t first = 0; first <= loader.batches(); ++first) {
      EXPECT_TRUE(equal(epoch(loader, 3, first), {whole.begin() + first, whole.end()}));
      if (first == loader.batches()) break;
      for (const int64_t index : whole[static_cast<size_t>(first)].indices)
        fs::remove(subset.samples->place(index));
    }
  }
}

TEST_F(LoaderTest, StartsThatMakeNoSenseAreRefused) {
  Loader loader(images(), eval_options(), options());
  EXPECT_HAS(error_of([&] { loader.next(); }), "call start() first");
  for (const auto& [number, first] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 0}, {0, -1}, {0, 7}, {1 << 24, 0}}) {
    EXPECT_HAS(error_of([&, number = number, first = first] { loader.start(number, first); }),
               "an epoch has 6 batches");
  }
  EXPECT_EQ(epoch(loader, (1 << 24) - 1).size(), 6u);
}

TEST_F(LoaderTest, ALastBatchThatIsNotFullCanBeLeftOut) {
  const auto subset = images();
  Loader dropping(subset, eval_options(), options(5).drop_last(true)),
      keeping(subset, eval_options(), options(5));
  auto all = epoch(keeping, 0);
  EXPECT_EQ(keeping.batches(), 5);
  EXPECT_EQ(dropping.batches(), 4);
  all.pop_back();
  EXPECT_TRUE(equal(epoch(dropping, 0), all));
  Loader full(subset, eval_options(), options(11).drop_last(true));
  EXPECT_EQ(epoch(full, 0).size(), 2u);
}

TEST_F(LoaderTest, BatchesThatAreKeptStayAsTheyAre) {
  const auto subset = images(60);
  Loader loader(subset, train_options(), options(2).queue(2));
  std::vector<Batch> kept;
  std::vector<at::Tensor> copies;
  loader.start(0);
  for (int i = 0; auto batch = loader.next(); ++i) {
    if (i % 3 == 0) continue;  // and let its memory be used again
    copies.push_back(batch->images.clone());
    kept.push_back(*std::move(batch));
  }
  rest(loader);
  epoch(loader, 1);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(same(kept[i].images, copies[i])) << i;
}

TEST_F(LoaderTest, BatchesOutliveTheirLoader) {
  const auto subset = images(4);
  std::vector<Batch> first = epoch(subset, eval_options(), options());
  EXPECT_TRUE(equal(first, epoch(subset, eval_options(), options())));
}

TEST_F(LoaderTest, StartingAgainInTheMiddleOfAnEpoch) {
  const auto subset = images(40);
  Loader loader(subset, train_options(), options(3).workers(4).shuffle(true));
  const auto expected = epoch(subset, train_options(), options(3).shuffle(true), 1);
  for (int taken = 0; taken < 10; ++taken) {
    loader.start(0);
    for (int i = 0; i < taken; ++i) loader.next();
    EXPECT_TRUE(equal(epoch(loader, 1), expected));
    loader.start(2);
    loader.start(3);
  }
}

TEST_F(LoaderTest, DestructionDoesNotWaitForAnEpoch) {
  const auto subset = images(40);
  for (const int64_t workers : {1, 8}) {
    for (const int64_t queue : {1, 4}) {
      for (const int wait : {0, 20}) {  // milliseconds; after which all workers wait for the queue
        const auto used = options(3).workers(workers).queue(queue);
        Loader idle(subset, train_options(), used), busy(subset, train_options(), used);
        busy.start(0);
        busy.next();
        std::this_thread::sleep_for(std::chrono::milliseconds(wait));
      }
    }
  }
}

TEST_F(LoaderTest, ImagesOfTarsAreLoadedAsThoseOfFiles) {
  const auto subset = images(10);
  test::Files files;
  for (int64_t i = 0; i < 10; ++i) {
    files.emplace_back(subset.samples->name(i), subset.samples->read(i));
  }
  test::write_tar(file("x.tar"), files);
  const Dataset data(file("x.tar").string());
  EXPECT_TRUE(equal(epoch(all_of(data.parts().at(0)), train_options(), options()),
                    epoch(subset, train_options(), options())));
}

TEST_F(LoaderTest, ImagesWithoutLabelsHaveMinusOne) {
  write_image(file("data/1.png"), 1);
  const auto part = std::make_shared<const Samples>(std::move(read_image_folder(file("data")).at(0)));
  EXPECT_EQ(epoch(all_of(part), eval_options(), options()).at(0).labels.item<int64_t>(), -1);
}

TEST_F(LoaderTest, OptionsThatMakeNoSenseAreRefused) {
  const auto subset = images(1);
  const auto error = [&](const LoaderOptions& used, const View& view = eval_options()) {
    return error_of([&] { Loader(subset, view, used); });
  };
  EXPECT_HAS(error(options(0)), "batch_size 0, workers 2 and queue 4 must be at least 1");
  EXPECT_HAS(error(options().workers(0)), "workers 0");
  EXPECT_HAS(error(options().queue(-1)), "queue -1");
  EXPECT_HAS(error(options().channels(2)), "channels 2: expected 1 or 3");
  EXPECT_HAS(error(options().cache(-1)), "cache -1 must be at least 0");
  EXPECT_HAS(error(options().max_pixels(0)), "max_pixels 0");
  EXPECT_HAS(error(options(), EvalViewOptions().image_size(0)), "image_size 0 must be at least 1");
  EXPECT_HAS(error_of([&] { Loader({subset.samples, {}}, eval_options(), options()); }), "no images to load");
  EXPECT_HAS(error_of([&] { Loader({}, eval_options(), options()); }), "no images to load");
}

// ---------------------------------------------------------------------------------------------------------

class LoaderCache : public LoaderTest {};

TEST_F(LoaderCache, ChangesNoByte) {
  const auto subset = images();
  for (const View& view : std::vector<View>{eval_options(), train_options(Decode::kExact)}) {
    Loader cached(subset, view, options().cache(1 << 20).workers(3).shuffle(true));
    Loader plain(subset, view, options().shuffle(true));
    for (int64_t number = 0; number < 3; ++number)
      EXPECT_TRUE(equal(epoch(cached, number), epoch(plain, number)));
  }
}

TEST_F(LoaderCache, HoldsAllThatFits) {
  const auto subset = images();
  Loader loader(subset, train_options(), options().cache(1 << 20));
  const auto first = epoch(loader, 0);
  delete_images();
  EXPECT_TRUE(equal(epoch(loader, 0), first));
  EXPECT_EQ(epoch(loader, 1).size(), first.size());
}

TEST_F(LoaderCache, StaysWithinItsLimit) {
  for (int64_t i = 0; i < 10; ++i) write_image(file("data") / "c" / fmt::format("{}.png", i), 1, 20, 16);
  const auto part = std::make_shared<const Samples>(std::move(read_image_folder(file("data")).at(0)));
  const int64_t bytes = 20 * 16 * 3;
  for (const int64_t limit : {bytes - 1, 3 * bytes, 4 * bytes - 1, 9 * bytes}) {
    for (int64_t i = 0; i < 10; ++i) write_image(file("data") / "c" / fmt::format("{}.png", i), 1, 20, 16);
    Loader loader(all_of(part), eval_options(), options().cache(limit).on_bad_image(OnBadImage::kSkip));
    EXPECT_EQ(indices_of(epoch(loader, 0)).size(), 10u);
    delete_images();
    EXPECT_EQ(indices_of(epoch(loader, 0)).size(), static_cast<size_t>(limit / bytes));
  }
}

// ---------------------------------------------------------------------------------------------------------

class BadImages : public LoaderTest {
 protected:
  static constexpr int64_t kBad = 9;  // of batch 2, if they are of 4

  std::string spoil(const SampleSubset& subset, int64_t index, const std::string& bytes) {
    write_bytes(subset.samples->place(index), bytes);
    return subset.samples->place(index);
  }
  std::string error_of_batch(Loader& loader, int64_t number) {
    loader.start(0);
    for (int64_t i = 0; i < number; ++i) EXPECT_TRUE(loader.next().has_value());
    return error_of([&] { loader.next(); });
  }
};

TEST_F(BadImages, AreNamedByTheBatchTheyAreIn) {
  const auto subset = images();
  const std::string sound = subset.samples->read(kBad);
  for (const int64_t workers : {1, 8}) {
    Loader loader(subset, eval_options(), options().workers(workers));
    const auto place = spoil(subset, kBad, "no image at all");
    const auto error = error_of_batch(loader, 2);
    EXPECT_HAS(error, "[Loader] '" + place + "': ");
    EXPECT_HAS(error, "`on-bad-image` skip");
    EXPECT_FALSE(loader.next().has_value());
    EXPECT_FALSE(loader.next().has_value());
    EXPECT_EQ(error_of_batch(loader, 2), error);
    spoil(subset, kBad, sound);
    EXPECT_EQ(epoch(loader, 0).size(), 6u);
    EXPECT_TRUE(loader.skipped().empty());
  }
}

TEST_F(BadImages, TheFirstOfABatchIsNamed) {
  const auto subset = images();
  Loader loader(subset, eval_options(), options(22).workers(8));
  for (const int64_t i : {15, 4, 9}) spoil(subset, i, "");
  for (int attempt = 0; attempt < 10; ++attempt)
    EXPECT_HAS(error_of_batch(loader, 0), subset.samples->place(4));
}

TEST_F(BadImages, OfEveryKind) {
  const auto subset = images();
  const std::string jpeg = test::encoded("x.jpg", test::blocks(1, 64, 64));
  std::string bomb = test::encoded("x.png", test::blocks(1, 8, 8));
  bomb.replace(16, 8, std::string("\0\1\0\0\0\1\0\0", 8));  // 65536 × 65536
  Loader loader(subset, eval_options(), options());
  for (const auto& [bytes, words] :
       test::Files{{"", ""}, {jpeg.substr(0, jpeg.size() / 2), ""}, {"some text\n", ""}, {bomb, ""}}) {
    const auto place = spoil(subset, kBad, bytes);
    EXPECT_HAS(error_of_batch(loader, 2), place);
  }
  fs::remove(subset.samples->place(kBad));
  EXPECT_HAS(error_of_batch(loader, 2), "No such file");
  spoil(subset, kBad, test::encoded("x.png", test::blocks(1, 8, 8)));
  Loader small(subset, eval_options(), options().max_pixels(200));
  EXPECT_HAS(error_of_batch(small, 0), subset.samples->place(0));
}

TEST_F(BadImages, CanBeSkipped) {
  const auto subset = images();
  const auto sound = epoch(subset, train_options(), options());
  const std::set<int64_t> bad = {0, 5, 6, 9, 21, 20};
  for (const int64_t i : bad) spoil(subset, i, i % 2 == 0 ? "" : "text");
  for (const int64_t workers : {1, 2, 7}) {
    Loader loader(subset, train_options(), options().workers(workers).on_bad_image(OnBadImage::kSkip));
    for (int again = 0; again < 3; ++again) {
      const auto batches = epoch(loader, 0);
      ASSERT_EQ(batches.size(), sound.size());
      for (size_t b = 0; b < batches.size(); ++b) {
        std::vector<int64_t> good;
        for (int64_t i = 0; i < static_cast<int64_t>(sound[b].indices.size()); ++i) {
          if (!bad.contains(sound[b].indices[static_cast<size_t>(i)])) good.push_back(i);
        }
        const auto rows = torch::tensor(good, torch::kLong);
        EXPECT_TRUE(same(batches[b].images, sound[b].images.index_select(0, rows))) << b;
        EXPECT_TRUE(same(batches[b].labels, sound[b].labels.index_select(0, rows))) << b;
        EXPECT_EQ(batches[b].indices.size(), good.size());
      }
      std::vector<int64_t> skipped;
      for (const auto& each : loader.skipped()) {
        skipped.push_back(each.index);
        EXPECT_EQ(each.place, subset.samples->place(each.index));
        EXPECT_FALSE(each.reason.empty());
      }
      EXPECT_EQ(skipped, std::vector<int64_t>(bad.begin(), bad.end()));
    }
  }
}

TEST_F(BadImages, ABatchOfNothingElseIsEmpty) {
  const auto subset = images(8);
  for (int64_t i = 4; i < 8; ++i) spoil(subset, i, "");
  Loader loader(subset, eval_options(), options().on_bad_image(OnBadImage::kSkip));
  const auto batches = epoch(loader, 0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[1].images.sizes(), (std::vector<int64_t>{0, 3, kSize, kSize}));
  EXPECT_EQ(batches[1].labels.sizes(), (std::vector<int64_t>{0}));
  EXPECT_EQ(batches[1].labels.scalar_type(), torch::kLong);
}

TEST_F(BadImages, OtherErrorsOfWorkersArriveToo) {
  const auto subset = images();
  for (const auto on_bad : {OnBadImage::kError, OnBadImage::kSkip}) {
    Loader loader(subset, EvalViewOptions().image_size(kSize).crop_pct(0), options().on_bad_image(on_bad));
    EXPECT_HAS(error_of_batch(loader, 0), "crop_pct");
    EXPECT_FALSE(loader.next().has_value());
    EXPECT_HAS(error_of_batch(loader, 0), "crop_pct");
  }
}

// ---------------------------------------------------------------------------------------------------------

TEST_F(LoaderTest, MemoryIsThatOfTheQueueWhateverTheNumberOfBatches) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep what is freed for a while";
#endif
  const auto one = images(3);
  SampleSubset many{one.samples, {}};
  for (int i = 0; i < 210 * 16; ++i) many.indices.push_back(i % 3);
  Loader loader(many, EvalViewOptions().image_size(64), options(16).workers(4));  // 786 KB a batch
  loader.start(0);
  const auto advance = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(loader.next().has_value());
  };
  advance(20);
  const int64_t early = test::status_kib("VmRSS");
  advance(180);
  EXPECT_LT(test::status_kib("VmRSS"), early + (16 << 10));
}

class LoaderDevice : public testing::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    folder_ = fs::temp_directory_path() / fmt::format("tpgm-loader-{}", ::getpid());
    test::remove_folder(folder_);
    subset_ = make_images(folder_, 30);
  }
  void TearDown() override { test::remove_folder(folder_); }
  void expect_near(const std::vector<Batch>& there, const std::vector<Batch>& here) {
    ASSERT_EQ(there.size(), here.size());
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(there[i].indices, here[i].indices);
      EXPECT_EQ(there[i].images.device().type(), device().type());
      EXPECT_EQ(there[i].labels.device().type(), device().type());
      EXPECT_TRUE(there[i].images.is_contiguous(torch::MemoryFormat::ChannelsLast));
      EXPECT_TRUE(torch::equal(there[i].labels.cpu(), here[i].labels));
      EXPECT_TRUE(torch::allclose(there[i].images.cpu(), here[i].images, 0, 1e-6)) << i;
    }
  }

  fs::path folder_;
  SampleSubset subset_;
};

TEST_P(LoaderDevice, HasTheSameValues) {
  for (const int64_t channels : {1, 3}) {
    for (const View& view : std::vector<View>{eval_options(), train_options()}) {
      const auto used = options().channels(channels).shuffle(true);
      const auto here = epoch(subset_, view, used, 1);
      Loader loader(subset_, view, LoaderOptions(used).device(device()));
      expect_near(epoch(loader, 1), here);
      expect_near(epoch(loader, 1, 5), {here.begin() + 5, here.end()});
    }
  }
}

TEST_P(LoaderDevice, KeptBatchesStayWhileTheDeviceIsBusy) {
  const auto here = epoch(subset_, train_options(), options(1));
  Loader loader(subset_, train_options(), options(1).queue(2).device(device()));
  const int64_t size = device().is_cuda() ? 1024 : 16;
  auto load = torch::randn({size, size}, device());
  for (int again = 0; again < 5; ++again) {
    loader.start(0);
    std::vector<Batch> there;
    while (auto batch = loader.next()) {
      for (int i = 0; i < 5; ++i) load = load.mm(load).tanh();
      there.push_back(*std::move(batch));
    }
    expect_near(there, here);
  }
}

TEST_P(LoaderDevice, BadImagesAreSkippedOrNamed) {
  for (const int64_t i : {2, 17}) write_bytes(subset_.samples->place(i), "text");
  const auto skip = options().on_bad_image(OnBadImage::kSkip);
  const auto here = epoch(subset_, eval_options(), skip);
  Loader skipping(subset_, eval_options(), LoaderOptions(skip).device(device()));
  expect_near(epoch(skipping, 0), here);
  EXPECT_EQ(skipping.skipped().size(), 2u);
  Loader strict(subset_, eval_options(), options().device(device()));
  for (int attempt = 0; attempt < 3; ++attempt) {
    strict.start(0, 1);
    for (int batch = 1; batch < 4; ++batch) EXPECT_TRUE(strict.next().has_value());
    EXPECT_HAS(error_of([&] { strict.next(); }), subset_.samples->place(17));
    EXPECT_FALSE(strict.next().has_value());
  }
}

TPGM_ON_EVERY_DEVICE(LoaderDevice);

}  // namespace
}  // namespace tpgm
