# The commands of the house. CMake does the building; see CMakePresets.json.
#
#   DATA=DIR      where MNIST lies, for `make run` and the tests that need it
#   SECONDS=S     how long each fuzzer runs; in `make long` 600
#   ONLY=PATTERN  which parts of `make long` run, for example 'changes in src/*'; docs/tests.md has their names
#   PREFIX=DIR    where `make install` puts things

SHELL := /bin/bash
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# Many tests wait for most of their time, so two more run than there are cores.
TESTS_AT_ONCE := $(shell expr $(JOBS) + 2)
# bash would count seconds in a variable of this name, so it is handed on under another.
FUZZ_SECONDS := $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),60)

# Some tests build the library in folders of their own. With ccache, if it is there, each file is compiled once.
WITH_CCACHE := CMAKE_C_COMPILER_LAUNCHER=$$(command -v ccache)

.PHONY: help run check check-build builds asan tsan fuzz long bench format install docs site deb clean

help:
	@echo "make run      train LeNet on four workers with float and with ternary gradients, and compare (2 min)"
	@echo "make check    build everything and run all tests (about 8 min on two cores)"
	@echo "make builds   build bare, and with sanitizers (clang, gcc); the fast tests of each (10 min)"
	@echo "make asan     the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan     the tests under ThreadSanitizer, without the trainer"
	@echo "make fuzz     run the fuzzers, SECONDS=60 each"
	@echo "make long     asan, tsan, fuzz, faults while training, changes that tests must notice (hours): docs/tests.md"
	@echo "make bench    speed of the codecs beside memcpy"
	@echo "make format   clang-format over all C sources, black over all Python"
	@echo "make install  library, headers, tool and man page to PREFIX=$(PREFIX)"
	@echo "make docs     pages of the C functions: build/release/docs/html, and manual pages, which install takes along"
	@echo "make site     a site of all documents, the commands and the C functions: build/site/index.html"
	@echo "make deb      Debian packages in build/deb/packages (about 3 min on two cores)"
	@echo "make clean    remove build/"
	@echo
	@echo "run, check, builds and fuzz first install the Debian packages that are missing (scripts/install-deps.sh)."

run:
	@scripts/install-deps.sh build run
	@cmake --preset release -DGW_BUILD_TESTS=OFF >/dev/null
	@cmake --build --preset release -j $(JOBS) --target gradwire_tool gradwire
	@scripts/run.sh build/release/gradwire

check:
	@echo "make check: builds, then runs all tests; about 8 minutes on two cores."
	@$(MAKE) --no-print-directory check-build
	$(WITH_CCACHE) ctest --test-dir build/release --output-on-failure -j $(TESTS_AT_ONCE)

# What check builds. CI does it while something else waits.
check-build:
	scripts/install-deps.sh build check
	$(WITH_CCACHE) cmake --preset release -DGW_BUILD_TESTS=ON
	cmake --build --preset release -j $(JOBS)

builds:
	scripts/install-deps.sh build check fuzz
	scripts/builds.sh $(JOBS)

asan tsan:
	scripts/install-deps.sh build check
	cmake --preset $@ -DGW_BUILD_TESTS=ON
	cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure -j $(TESTS_AT_ONCE)

fuzz:
	scripts/install-deps.sh build fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)

long:
	scripts/install-deps.sh build check fuzz
	scripts/long.sh $(JOBS) $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),600)

bench:
	@scripts/install-deps.sh build
	@cmake --preset release -DGW_BUILD_TESTS=OFF >/dev/null
	@cmake --build --preset release -j $(JOBS) --target gradwire_tool
	build/release/gradwire bench codec

format:
	scripts/install-deps.sh format
	git ls-files -z "*.c" "*.h" | xargs -0 clang-format -i
	git ls-files -z "*.py" | xargs -0 black -q

install:
	cmake --preset release -DGW_BUILD_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX) -DCMAKE_INSTALL_LIBDIR=lib
	cmake --build --preset release -j $(JOBS)
	cmake --install build/release
	@if [ "$$(id -u)" = 0 ] && [ -z "$(DESTDIR)" ]; then ldconfig; fi
	@echo "The tool:  $(PREFIX)/bin/gradwire"
	@echo "C:         export PKG_CONFIG_PATH=$(PREFIX)/lib/pkgconfig; cc a.c \$$(pkg-config --cflags --libs gradwire)"
	@echo "Python:    export GRADWIRE_LIBRARY=$(PREFIX)/lib/libgradwire.so"

docs:
	scripts/install-deps.sh build docs
	cmake --preset release >/dev/null
	cmake --build --preset release --target docs
	@echo "build/release/docs/html/index.html"

site: docs
	scripts/install-deps.sh site
	cmake --build --preset release -j $(JOBS) --target gradwire_tool
	scripts/site.py

deb:
	scripts/install-deps.sh build deb
	packaging/make-deb.sh

clean:
	rm -rf build
