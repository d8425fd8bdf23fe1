# The compiled kernels under tools that see what a test cannot. Included by Makefile; each target is one command
# for a developer and for continuous integration. Everything is built under build/native and nothing is installed.

NATIVE    := build/native
KERNELS   := $(wildcard kernels/cpu/*.cpp)
KERNEL_H  := $(wildcard kernels/cpu/*.hpp)
# What the fuzzed program is made of: reading patches and writing weights, without Python.
DECODER   := $(wildcard kernels/cpu/decode*.cpp kernels/cpu/scatter*.cpp) \
             $(addprefix kernels/cpu/,apply.cpp pieces.cpp resolve.cpp)
NANOBIND   = $(NATIVE)/nanobind/nanobind
PYTHON_H   = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
PACKAGES_AT = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
SUFFIX     = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')

SANITIZE  := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g
FUZZ_S    ?= 30

.PHONY: sanitize fuzz valgrind fuzz-corpus clang

# Tests of the kernels with the extension under AddressSanitizer and UndefinedBehaviorSanitizer: those that call
# every kernel over memory that ends at a closed page, far away, in threads, and with arguments that lie. An
# interpreter without site (-S, -P) does not see the installed deltastore, so it takes the one under build/native.
SANITIZED := $(addprefix tests/kernels/test_,fences.py far_memory.py threads.py staged_lists.py offsets.py \
               inversion.py block_digests.py)
sanitize: $(VENV)/installed-dev $(NATIVE)/site
	LD_PRELOAD=$$($(CXX) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	PYTHONMALLOC=malloc PYTHONPATH=$(NATIVE)/site:$(PACKAGES_AT) \
	$(BIN)/python -S -P -m pytest -q -o pythonpath=$(NATIVE)/site -p no:cacheprovider --capture=sys $(SANITIZED)

# Minutes of it find little more than seconds: the corpus is the tests' own patches. FUZZ_S=600 for longer.
fuzz: $(NATIVE)/fuzz-decoder
	@mkdir -p $(NATIVE)/found
	$< -max_total_time=$(FUZZ_S) -rss_limit_mb=1024 -malloc_limit_mb=128 -timeout=10 -max_len=4096 -print_final_stats=1 \
	  -artifact_prefix=$(NATIVE)/found/ $(NATIVE)/found tests/kernels/native/corpus

# Reads of what was never written, in every kernel and with all instructions that valgrind knows.
valgrind: $(VENV)/installed-dev $(NATIVE)/valgrind-site
	@command -v valgrind > /dev/null || { apt-get update -q && apt-get install -q -y valgrind; }
	PYTHONMALLOC=malloc PYTHONPATH=$(NATIVE)/valgrind-site:$(PACKAGES_AT):. \
	valgrind -q --error-exitcode=9 --suppressions=tests/kernels/native/valgrind.supp \
	$(BIN)/python -S -P tests/kernels/native/one_of_each.py

fuzz-corpus: $(VENV)/installed-dev
	$(BIN)/python -m tests.kernels.native.write_corpus

clang:
	@echo 'int main() {}' | clang++ -x c++ -fsanitize=fuzzer-no-link,address - -o /dev/null 2> /dev/null || \
	  { apt-get update -q && apt-get install -q -y clang "libclang-rt-$$(apt-cache depends clang | sed -n 's/.*clang-\([0-9]*\)$$/\1/p')-dev"; }

$(NANOBIND): | $(VENV)/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --target $(NATIVE)/nanobind nanobind

INCLUDES = -I$(NANOBIND)/include -I$(NANOBIND)/ext/robin_map/include -I$(PYTHON_H)

define built_with
$(NATIVE)/$(1)/%.o: kernels/cpu/%.cpp $(KERNEL_H) | $(NANOBIND)
	@mkdir -p $$(@D)
	$(CXX) -std=c++17 -fPIC -fvisibility=hidden -ffp-contract=off $(2) $$(INCLUDES) -c $$< -o $$@

$(NATIVE)/$(1)/nanobind.o: | $(NANOBIND)
	@mkdir -p $$(@D)
	$(CXX) -std=c++17 -fPIC -fvisibility=hidden -fno-strict-aliasing -w -O1 -g -DNDEBUG $$(INCLUDES) \
	  -c $(NANOBIND)/src/nb_combined.cpp -o $$@

# The package as a wheel lays it out, with this extension in it.
$(NATIVE)/$(3): $(patsubst kernels/cpu/%.cpp,$(NATIVE)/$(1)/%.o,$(KERNELS)) $(NATIVE)/$(1)/nanobind.o
	@rm -rf $$@ && mkdir -p $$@/deltastore/kernels/cpu
	@ln -s $(filter-out %/kernels,$(wildcard $(CURDIR)/deltastore/*)) $$@/deltastore/
	@ln -s $(filter-out %/cpu,$(wildcard $(CURDIR)/kernels/*)) $$@/deltastore/kernels/
	@ln -s $(CURDIR)/kernels/cpu/*.py $$@/deltastore/kernels/cpu/
	@ln -s $(CURDIR)/tests $$@/tests
	$(CXX) -shared -pthread $(2) $$^ -o $$@/deltastore/kernels/cpu/_native$$(SUFFIX)
endef

$(eval $(call built_with,asan,-O1 $(SANITIZE),site))
$(eval $(call built_with,plain,-O1 -g,valgrind-site))

$(NATIVE)/fuzz-decoder: tests/kernels/native/fuzz_decoder.cpp $(DECODER) $(KERNEL_H) | clang
	@mkdir -p $(@D)
	clang++ -std=c++17 -O1 -fsanitize=fuzzer $(SANITIZE) -Ikernels/cpu $(filter %.cpp,$^) -pthread -o $@
