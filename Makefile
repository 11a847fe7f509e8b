# A thin front for CMake: each target is a line or two that could be typed by hand.
JOBS ?= $(shell nproc)
CLANG_FORMAT ?= .venv/bin/clang-format
FORMATTED = $(wildcard $(shell git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh'))

.DEFAULT_GOAL := help
.PHONY: help build test torture demo bench docs format format-check test-gpu sanitize tsan fuzz install-check clean

help:  ## this list
	@echo 'make <target> [JOBS=$(JOBS)]'
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

build/build.ninja:
	scripts/bootstrap

build: build/build.ninja  ## the library, the command build/bin/tpgm, the examples and the tests
	cmake --build --preset release -j $(JOBS)

test: build  ## every test (those for a GPU are skipped without one), and the directions of the includes
	scripts/check_includes
	ctest --preset release -j $(JOBS)

MINUTES ?= 30

torture: build/build.ninja  ## kills, failing calls, damaged files and starved machines, MINUTES=30 in all
	cmake --build --preset release -j $(JOBS) --target tpgm_command torture-faults
	tests/torture/run build/bin/tpgm build/tests/libtorture-faults.so --minutes $(MINUTES)

demo: build/build.ninja  ## the methods side by side on the built-in data: a table and build/demo/report.html
	cmake --build --preset release -j $(JOBS) --target tpgm_command
	@rm -rf build/demo
	@build/bin/tpgm demo -o build/demo

bench: build  ## the projection, merging checkpoints, a training step and the loader, timed beside baselines
	build/bin/tpgm bench projection
	build/bin/tpgm bench io
	build/bin/tpgm bench step
	build/bin/tpgm bench loader

format: check-clang-format  ## rewrite the sources in the house style
	@$(CLANG_FORMAT) -i $(FORMATTED)

format-check: check-clang-format  ## fail where 'make format' would change something
	@$(CLANG_FORMAT) --dry-run --Werror $(FORMATTED)
	@echo 'format-check: $(words $(FORMATTED)) files are in the house style'

.PHONY: check-clang-format
check-clang-format:
	@test -x $(CLANG_FORMAT) || { echo '$(CLANG_FORMAT) is missing; scripts/bootstrap installs it' >&2; exit 1; }
	@test -n '$(firstword $(FORMATTED))' || { echo 'git lists no sources here; is this a checkout?' >&2; exit 1; }

docs: build  ## docs/cli.md from --help, and the figures of README and docs
	scripts/generate_cli_docs build/bin/tpgm > docs/cli.md
	build/bin/tpgm theory --plot docs/theory.svg > /dev/null
	rm -rf build/demo
	build/bin/tpgm demo -o build/demo > /dev/null
	cp build/demo/report/plane.svg docs/plane.svg

test-gpu: build  ## the tests that need a GPU
	@build/bin/tpgm --version | grep 'CUDA: yes' || { echo "test-gpu: no GPU: 'build/bin/tpgm --version' does not say" \
	  "'CUDA: yes'. It takes a GPU, nvcc and a CUDA build of LibTorch named in CMAKE_PREFIX_PATH." >&2; exit 1; }
	ctest --preset release -L gpu

build-sanitize/build.ninja:
	scripts/bootstrap --no-configure
	cmake --preset sanitize

sanitize: build-sanitize/build.ninja  ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --build --preset sanitize -j $(JOBS)
	ctest --preset sanitize -j $(JOBS)

build-tsan/build.ninja:
	scripts/bootstrap --no-configure
	cmake --preset tsan

tsan: build-tsan/build.ninja  ## the loader and what else has threads of its own under ThreadSanitizer
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan -j $(JOBS)

SECONDS_EACH ?= 600

build-fuzz/build.ninja:
	scripts/bootstrap --no-configure
	cmake --preset fuzz

fuzz: build-fuzz/build.ninja  ## every parser under libFuzzer for SECONDS_EACH=600, JOBS at a time (needs clang)
	cmake --build --preset fuzz -j $(JOBS)
	tests/fuzz/run --seconds $(SECONDS_EACH) --jobs $(JOBS)

install-check: build  ## install into a fresh prefix, build and run examples/cmake_project against it
	ctest --preset release -L install

clean:  ## remove every build folder
	rm -rf build build-debug build-sanitize build-tsan build-fuzz
