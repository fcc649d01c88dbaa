# SPDX-License-Identifier: Apache-2.0

export CGO_ENABLED := 0
export GOTOOLCHAIN := local
GOARCH ?= $(shell go env GOARCH)
VERSION ?= $(shell cat VERSION)
# The host's binary is bin/rezolus, another architecture's bin/rezolus-ARCH.
BINARY := bin/rezolus$(if $(filter-out $(shell go env GOHOSTARCH),$(GOARCH)),-$(GOARCH))
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

# Packages whose tests run inside the virtual machines too.
KERNEL_TESTS := ./internal/bpf ./internal/host $(patsubst %,./internal/source/%,cgroupfs clock drive ethtool external \
	gpu mounts perf procfs sysfs tasks) ./test/truth
# The real binary on a machine whose clock is set and which is suspended.
MACHINE_TESTS := -command ./cmd/rezolus -run 'TestThe(Clock|Machine)' ./test/crash
# Packages in which goroutines share memory.
RACE_TESTS := ./internal/agent ./internal/follow ./internal/gather ./internal/hindsight ./internal/host ./internal/ring ./internal/store ./internal/bpf $(patsubst %,./internal/source/%,drive external gpu mounts \
	scrape sysfs)

.DEFAULT_GOAL := build
.PHONY: run test build build-nvml generate bundle fmt lint check unit race test-kernels test-arm64 bench bench-recorder fuzz clean

run: ## install what is missing, build, and run the agent with its page
	@scripts/prereqs.sh run
	@$(MAKE) --no-print-directory build
	@exec $(AS_ROOT) ./$(BINARY)

build: ## the static binary at bin/rezolus
	GOARCH=$(GOARCH) go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BINARY) ./cmd/rezolus

build-nvml: ## the same with NVIDIA's library, which it loads: not static, needs glibc
	GOARCH=$(GOARCH) go build -tags nvml -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BINARY)-nvml ./cmd/rezolus

test: ## install what the tests need and run them all
	@scripts/prereqs.sh test
	@$(MAKE) --no-print-directory check build
	@$(MAKE) --no-print-directory build GOARCH=$(if $(filter arm64,$(GOARCH)),amd64,arm64)
	@$(MAKE) --no-print-directory test-kernels
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory unit

check: ## formatting, vet, and that everything generated is what its source makes
	@test -z "$$(gofmt -l cmd internal probes test)" || { echo "run make fmt:"; gofmt -l cmd internal probes test; exit 1; }
	go vet ./...
	GOARCH=arm64 go vet ./...
	go vet -tags nvml ./cmd/rezolus ./internal/source/gpu
	scripts/generate.sh --check
	scripts/bundle.sh --check

unit: ## every test that runs on this kernel
	go run ./test/gotest ./...
	go run ./test/gotest -tags nvml ./internal/source/gpu

race: ## the packages that share memory, under the race detector
	CGO_ENABLED=1 go run ./test/gotest -race -short $(RACE_TESTS)

test-kernels: ## the probes and what reads the kernel, on distributions' kernels in QEMU
	@scripts/prereqs.sh kernels
	go run ./test/vm -kernel 5.10 $(KERNEL_TESTS)
	go run ./test/vm -kernel 5.15 $(KERNEL_TESTS)
	go run ./test/vm -kernel 6.1 $(KERNEL_TESTS)
	go run ./test/vm -kernel 6.12 $(KERNEL_TESTS)
	go run ./test/vm -kernel 6.1 $(MACHINE_TESTS)
	go run ./test/vm -kernel 6.12 $(MACHINE_TESTS)
	go run ./test/vm -kernel 6.1 -cgroup v1 ./internal/host ./internal/source/cgroupfs ./test/truth

test-arm64: ## the same on an arm64 kernel
	@scripts/prereqs.sh arm64
	go run ./test/vm -kernel 6.1 -arch arm64 $(KERNEL_TESTS)

generate: ## rebuild the BPF objects and the page's bundle
	@scripts/prereqs.sh generate
	scripts/generate.sh
	scripts/bundle.sh
	go test ./cmd/rezolus -run TestTheMetricsPage -update

fmt:
	gofmt -w cmd internal probes test

lint: check ## what check does, and the page's types
	scripts/bundle.sh --types

bench: build ## what the probes cost the host, and what the agent costs itself
	$(AS_ROOT) go run ./test/bench
	go test -run '^$$' -bench . -benchtime 200ms ./internal/... 

SECONDS ?= 60
bench-recorder: build ## what recording costs: CPU, memory, lost ticks and bytes, at 1 s, 10 ms and 1 ms
	$(AS_ROOT) go run ./test/benchrec -seconds $(SECONDS)

FUZZTIME ?= 10s
fuzz: ## every fuzz target for FUZZTIME
	@for p in $$(grep -rl --include=*_test.go 'func Fuzz' internal test | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -ho 'func Fuzz[A-Za-z0-9]*' $$p/*_test.go | cut -c6-); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) ./$$p || exit 1; done; done

clean:
	rm -rf bin .cache
