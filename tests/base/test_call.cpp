// The name in front of an error.
#include "tpgm/base/call.h"

#include "tests/support.h"

namespace tpgm {
namespace {

using testing::error_of;

void fail(const std::string& text) { TORCH_CHECK(false, text); }

void inner(const std::string& text) try { fail(text); } catch (...) {
  rethrow_from("inner");
}

void outer(const std::string& text) try { inner(text); } catch (...) {
  rethrow_from("outer");
}

TEST(Call, OutermostIsNamed) {
  EXPECT_EQ(error_of([] { inner("'x' is wrong; correct it"); }), "[inner] 'x' is wrong; correct it");
  EXPECT_EQ(error_of([] { outer("'x' is wrong; correct it"); }), "[outer] 'x' is wrong; correct it");
  EXPECT_EQ(error_of([] { outer("[Somewhere::deep] 'x' is wrong"); }), "[outer] 'x' is wrong");
}

TEST(Call, WhatIsNoNameStays) {
  EXPECT_EQ(error_of([] { outer("[10,512] is not a shape"); }), "[outer] [10,512] is not a shape");
  EXPECT_EQ(without_call("[data split] nothing is left"), "nothing is left");
  EXPECT_EQ(without_call("[enforce fail at alloc.cpp:117] err"), "[enforce fail at alloc.cpp:117] err");
  EXPECT_EQ(without_call("[x]"), "[x]");
}

TEST(Call, NameIsOnTheFirstLineAndContextStays) {
  try {
    try {
      fail("'x' is wrong");
    } catch (c10::Error& error) {
      error.add_context("in 'file'");
      throw;
    } catch (...) {
      FAIL();
    }
  } catch (...) {
    EXPECT_EQ(error_of([] { rethrow_from("call"); }), "[call] 'x' is wrong (in 'file')");
  }
  try {
    inner("'x' is wrong");
  } catch (const c10::Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[inner] 'x' is wrong\n", 0), 0U) << error.what();
  }
}

TEST(Call, OtherErrorsStayWhatTheyAre) {
  const auto thrown = [](const auto& error) {
    try {
      throw error;
    } catch (...) {
      rethrow_from("call");
    }
  };
  EXPECT_THROW(thrown(std::bad_alloc()), std::bad_alloc);
  EXPECT_THROW(thrown(c10::OutOfMemoryError("no memory")), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace tpgm
