# Everything a developer does, by name. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A Go that scripts/setup-go.sh has fetched into the user's cache, because there was none.
export PATH := $(or $(XDG_CACHE_HOME),$(or $(HOME),$(CURDIR)/build)/.cache)/trainyard/go/bin:$(PATH)

# The newest release of the changelog; what is built between releases is named by git.
RELEASE := $(shell sed -nE 's/^\#\# \[([0-9]+\.[0-9]+\.[0-9]+[^]]*)\].*/\1/p' CHANGELOG.md | head -n 1)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
TAGS ?=
comma := ,
# The nvml tag calls NVIDIA's library through C; everything else is pure Go.
CGO_ENABLED ?= $(if $(filter nvml,$(subst $(comma), ,$(TAGS))),1,0)
FUZZTIME ?= 30s
KILLS ?= 200
SEED ?= 1

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what is missing for run, test and check
	@scripts/setup.sh run test check

.PHONY: run
run: ## Start a yard on this machine, train an example on it, stay up until Ctrl-C
	@scripts/setup.sh run
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory build; fi
	@scripts/run.sh

.PHONY: build
build: ## Build build/trainyard (TAGS=nvml to read GPUs through NVIDIA's library)
	@mkdir -p build
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o cmd/trainyard/helper.bin ./cmd/trainyard-helper
	@$(MAKE) --no-print-directory portal gpushare
	CGO_ENABLED=$(CGO_ENABLED) go build -trimpath -tags "helper$$([ ! -e cmd/trainyard/portal/index.html ] || echo ,portal)$$([ ! -e cmd/trainyard/gpushare.bin ] || echo ,gpushare),$(TAGS)" -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o build/trainyard ./cmd/trainyard

.PHONY: portal
portal: ## Build the pages of the portal into cmd/trainyard/portal; without Node.js 20.19 nothing is built
	@if scripts/setup-web.sh; then npm --prefix web run --silent build; else rm -rf cmd/trainyard/portal; fi

.PHONY: gpushare
gpushare: ## Build the library for shared GPUs into cmd/trainyard/gpushare.bin; without gcc nothing is built, and GPUs cannot be shared
	@if command -v gcc >/dev/null && [ "$$(go env GOOS)/$$(go env GOARCH)" = "$$(go env GOHOSTOS)/$$(go env GOHOSTARCH)" ]; then native/gpushare/build.sh cmd/trainyard/gpushare.bin; else rm -f cmd/trainyard/gpushare.bin; echo "no gcc for this platform: GPUs cannot be shared by what is built" >&2; fi

.PHONY: quick
quick: ## Answer in under two minutes: vet, house rules, and the fast packages without the race detector
	@scripts/quick.sh

.PHONY: test
test: ## Run every test, with the race detector where anything runs concurrently: packages, examples, end to end
	@scripts/setup.sh test
	@scripts/test.sh

.PHONY: check
check: ## Format, vet, linters, modules, vulnerabilities, generated files, a brief fuzz of every target
	@scripts/setup.sh check
	@scripts/check.sh

.PHONY: generate
generate: ## Write what is generated from the code: API description, schema, reference, life cycles, policies and features, package table
	go run ./cmd/trainyard generate .
	@if scripts/setup-web.sh; then npm --prefix web run --silent types; else echo "web/src/api/schema.ts was not generated"; fi
	go test ./internal -run '^TestArchitectureListsEveryPackage$$' -count=1 -update
	go test ./test/features -run '^TestEveryPolicyWithEveryFeature$$' -count=1 -update

.PHONY: golden
golden: ## Write all golden files anew: review the diff as code
	go test $$(git grep -l '"trainyard/test/golden"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|') -count=1 -update

.PHONY: fuzz
fuzz: ## Fuzz every target, each for FUZZTIME (30s)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: test-crash
test-crash: ## Kill server and agent at random while jobs flow: KILLS=2000 SEED=7 make test-crash
	@scripts/setup.sh test
	go test ./test/crash -run TestCrash -count=1 -timeout 60m -v -kills $(KILLS) -seed $(SEED)

.PHONY: test-moves
test-moves: ## Move trainings between agents and kill everything on the way: KILLS=200 SEED=7 make test-moves
	@scripts/setup.sh test
	@scripts/setup-train.sh
	go test ./test/moves -count=1 -timeout 120m -v -kills $(KILLS) -seed $(SEED)

.PHONY: test-chaos
test-chaos: ## Break real yards in network namespaces in every way of the fault table, on both stores (root; ROWS=7,19 for some)
	@scripts/setup.sh test
	go test ./test/netlab ./test/chaos/evidence -count=1
	go test ./test/chaos -count=1 -timeout 180m -parallel 4 -v $(if $(ROWS),-run TestFaults -rows '$(ROWS)',-all)

.PHONY: test-gangs
test-gangs: ## Train with torchrun on several nodes in network namespaces, and kill server and agents while gangs start (root; KILLS=200 SEED=7)
	@scripts/setup.sh test
	@scripts/setup-train.sh
	go test ./test/gangs -count=1 -timeout 120m -v -kills $(KILLS) -seed $(SEED) -container-nodes 4

.PHONY: test-walls
test-walls: ## Attack real yards as a researcher who wants what belongs to others (root; FINDINGS=S15 for those of one finding)
	@scripts/setup.sh test
	go test ./test/walls -count=1 -timeout 30m -v $(if $(FINDINGS),-run '^Test$(FINDINGS)_')

.PHONY: test-docker
test-docker: ## Test jobs in containers with Docker's engine instead of podman (root; installs docker.io)
	@scripts/setup.sh docker
	@TRAINYARD_TEST_ENGINE=docker CI=true go test -count=1 -timeout 30m ./internal/agent/runtime ./test/walls ./test/gangs -run 'Contain|Image|Registry|Engine|S22'

.PHONY: test-newcomer
test-newcomer: ## Go through the day of a newcomer: each finding is a test (FINDINGS=09 for one)
	@scripts/setup.sh test
	go test ./test/e2e/newcomer -count=1 -timeout 15m -v $(if $(FINDINGS),-run '^TestNewcomer$(FINDINGS)')

.PHONY: soak
soak: ## Break a yard at random while 2,000 jobs flow: SOAK=2h SEED=7 make soak (10 minutes, root)
	@scripts/setup.sh test
	go test ./test/chaos -run '^TestSoak$$' -count=1 -timeout 0 -v -soak $(or $(SOAK),10m) -seed $(if $(filter file,$(origin SEED)),0,$(SEED))

.PHONY: test-promises
test-promises: ## Compare what the yard says of waiting jobs with what then happens, in other yards each time: CHECKS=1000 make test-promises
	go test ./internal/sim -run '^TestPromisesComeTrue$$' -count=1 -timeout 180m -rapid.checks $(or $(CHECKS),1000) -rapid.seed $$(date +%s)

.PHONY: test-leases
test-leases: ## Try random histories of providers, crashes and lost answers on the leases: HISTORIES=100000 SEED=7 make test-leases
	go test ./test/leases -run TestLeaseChaos -count=1 -timeout 120m -v -histories $(or $(HISTORIES),10000) -seed $(SEED)

.PHONY: test-sdk-frameworks
test-sdk-frameworks: ## Test the Python callbacks with the real frameworks, as far as they are installed; with PYTHON= of one that has Lightning, Keras and JAX also the recipes
	cd sdk/python && $(or $(PYTHON),$$(../../scripts/setup-recipes.sh)) -B -m unittest -v tests.real_torch tests.real_frameworks
	$(if $(PYTHON),PYTHON='$(PYTHON)' go test ./examples/checkpoints -count=1 -v)

.PHONY: test-openstack
test-openstack: ## Test the OpenStack provider against real Keystone and Nova (heavy, needs root; RECORD=1 renews the record)
	@scripts/setup-openstack.sh >/dev/null
	go test -tags openstack ./internal/cloud/openstack -count=1 -timeout 60m -v $(if $(RECORD),-record)

.PHONY: demo-hybrid
demo-hybrid: ## Show local, reserved and provisioned nodes in one queue on this machine (PROVIDER=ec2 against an EC2 API server)
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory build
	@scripts/demo-hybrid.sh

.PHONY: bench-core
bench-core: ## Measure the core, and Slurm beside it in the same run; figures in build/bench/bench-core.json
	@scripts/setup.sh test
	@scripts/setup-slurm.sh
	@mkdir -p build/bench
	go run ./test/bench -out build/bench/bench-core.json

.PHONY: bench-scale
bench-scale: ## Measure a full yard: a million ended and 20,000 queued jobs, 1,000 nodes (QUICK=1 for a small one, ONLY=reads,reports for some sections)
	@mkdir -p build/bench
	go run ./test/bench -suite scale -hyperqueue "$$(scripts/setup-hyperqueue.sh || true)" -out build/bench/bench-scale.json $(if $(QUICK),-quick) $(if $(ONLY),-only $(ONLY))

.PHONY: bench-soak
bench-soak: ## Let short jobs flow through a real yard for an hour and look for what grows (MINUTES=10 for less); figures in build/bench/bench-soak.json
	@mkdir -p build/bench
	go run ./test/bench/soak -span $(or $(MINUTES),60)m -out build/bench/bench-soak.json

.PHONY: bench-failover
bench-failover: ## Measure how fast a second server takes over, 100 times (root); figures in build/bench/bench-failover.json
	@scripts/setup.sh test
	@mkdir -p build/bench
	go test ./test/chaos -run '^TestFailovers$$' -count=1 -timeout 120m -v -failovers $(or $(FAILOVERS),100) -out '$(CURDIR)/build/bench/bench-failover.json'

.PHONY: bench-checkpoint
bench-checkpoint: ## Measure saving and restoring a checkpoint beside cp and S3 (10 GB, 35 GB of disk; SIZE=1GB for less); figures in build/bench
	@scripts/setup.sh test
	@mkdir -p build/bench
	go test ./test/bench/checkpoint -run '^TestCheckpoints$$' -count=1 -timeout 60m -v -size $(or $(SIZE),10GB) -out '$(CURDIR)/build/bench/bench-checkpoint.json'

.PHONY: bench-logs
bench-logs: ## Measure reading, searching and following the output of a job (1 GB; SIZE=100MB for less); figures in build/bench/bench-logs.json
	@mkdir -p build/bench
	go test ./test/bench/logs -run '^TestLogs$$' -count=1 -timeout 60m -v -size $(or $(SIZE),1GB) -out '$(CURDIR)/build/bench/bench-logs.json'

.PHONY: bench-runtime
bench-runtime: ## Measure starts beside podman, Docker and srun, gangs, a forwarded port, cp beside scp, an array (root, podman; QUICK=1 to try it, ONLY=start,gang for some)
	@command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || apt-get install -y --no-install-recommends openssh-server
	@mkdir -p build/bench
	go test ./test/bench/runtime -run '^TestRuntime$$' -count=1 -timeout 60m -v $(if $(QUICK),,-full) $(if $(ONLY),-only $(ONLY)) -out '$(CURDIR)/build/bench/$@.json'

.PHONY: bench-portal
bench-portal: build ## Measure the portal in Chromium: opening, 1,000 updates a second, 100,000 jobs, a log of a million lines (QUICK=1 to try it)
	@scripts/setup.sh test
	@mkdir -p build/bench
	go run ./test/bench/portal -out build/bench/bench-portal.json $(if $(QUICK),-quick)

.PHONY: cover cover-baseline
cover: ## Measure test coverage and compare it with docs/baseline (PACKAGES=./internal/queue for a part)
	@mkdir -p build
	go test -short -coverprofile=build/cover.out $(or $(PACKAGES),./internal/... ./cmd/...)
	@go run ./tools/coverage

cover-baseline: ## Store the coverage that make cover measured
	@go run ./tools/coverage -store

.PHONY: test-first-gpu
test-first-gpu: build ## Start a yard on a machine with a GPU and see what a newcomer sees (PyTorch and Lightning)
	@PYTHON='$(PYTHON)' scripts/test-first-gpu.sh

.PHONY: bench-gpushare
bench-gpushare: ## Divide a GPU among PyTorch programs, beside time-slicing and MPS (an NVIDIA GPU that nobody uses; ONLY=gpu_ for some cases)
	@mkdir -p build/gpushare
	@native/gpushare/build.sh build/gpushare/libtrainyard-gpu.so
	@go build -o build/gpushare/gpushare ./test/bench/gpushare
	@build/gpushare/gpushare -library build/gpushare/libtrainyard-gpu.so -python '$(or $(PYTHON),python3)' -only '$(ONLY)' -out build/bench/gpushare.json

.PHONY: test-oom-gpu
test-oom-gpu: build ## Let a PyTorch training exceed a GPU of which it may use 16 GiB, and see it finish with more (a GPU with 48 GB or more)
	@PYTHON='$(PYTHON)' scripts/test-oom-gpu.sh

.PHONY: bench-snapshot
bench-snapshot: ## Measure how long a training takes to be saved and restored as a whole program (root; a GPU if there is one)
	@mkdir -p build/bench
	go run ./test/bench/snapshot -criu "$$(scripts/setup-criu.sh | head -n 1)" -python "$(or $(PYTHON),python3)" -gib "$(or $(GIB),1)" -steps "$(or $(STEPS),1000)" -out build/bench/$@.json

.PHONY: screenshots
screenshots: build ## Renew the pictures of the portal in docs/img/portal from the demo yard (Node.js, Chromium)
	@scripts/setup-web.sh
	cd web && node tools/screenshots.mjs ../build/trainyard ../docs/img/portal

.PHONY: bench-compare bench-baseline
bench-compare: ## Compare the figures in build/bench with the stored ones; fails where one got worse
	@go run ./test/bench/compare

bench-baseline: ## Store the figures in build/bench as those to compare with
	@go run ./test/bench/compare -store

# Releases. SOURCE_DATE_EPOCH is the date of everything in the archives.
.PHONY: release release-check api-release
release: ## Build the archives of a release into build/release: binaries, checksums, SBOM
	rm -rf build/release
	scripts/setup-web.sh
	npm --prefix web run --silent build
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} && \
	  go run ./tools/release -version '$(RELEASE)' -commit '$(COMMIT)' -epoch "$$SOURCE_DATE_EPOCH" -out build/release \
	  $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

release-check: ## Build the release twice, in two folders with two caches, and compare the digests
	@PLATFORMS='$(PLATFORMS)' scripts/release-check.sh

api-release: ## Store the API of the newest release of the changelog, to compare later ones with
	@$(MAKE) --no-print-directory generate
	cp api/openapi.yaml 'api/releases/$(RELEASE).yaml'

# The policies and the simulator: each target prints its table and writes build/bench/<target>.json.
# TRAINYARD_DATA names the folder with the public traces; without it what needs them is left out or generated.
# Those that time something come first: bench-all runs them in this order.
policy_benches := bench-place bench-sim bench-alloc bench-fidelity bench-swf bench-edl bench-harvest bench-datacenter bench-burst bench-relocate bench-elastic bench-andreas bench-share-place

.PHONY: $(policy_benches)
bench-andreas: ## Measure energy and lateness of andreas beside its baselines and the published rule
bench-datacenter: ## The same on the tables on which the published rule loses to its baselines
bench-alloc: ## Measure the exact allocator beside the solvers that are installed
bench-harvest: ## Measure elastic jobs on idle nodes beside the best fixed assignment to nodes that stay
bench-edl: ## Measure elastic jobs beside a service whose load goes up and down
bench-elastic: ## Measure elastic and preemptive policies on public workloads, beside published figures
bench-swf: ## Check the orders of waiting jobs against an independent computation
bench-place: ## Measure how long the policies rules and fifo take to decide
bench-fidelity: ## Measure how far the simulator is from real processes, on a quiet machine (STREAMS=preempt,grow,home for some)
bench-sim: ## Measure the simulator: jobs and events a second, memory, beside a simulator in Python
bench-burst: ## Measure how much cloud the yard provisions for how short waits, beside Starburst's rule and a lower bound
bench-share-place: ## Measure what it saves that jobs share GPUs: GPUs, waiting and energy beside whole GPUs and best fit
bench-relocate: ## Measure what it saves to bring jobs home from provisioned nodes, beside never and always moving (about 25 minutes)
$(policy_benches):
	@mkdir -p build/bench
	go run ./test/bench/policies -target $(@:bench-%=%) -out build/bench/$@.json $(if $(QUICK),-quick) $(if $(STREAMS),-streams $(STREAMS))

.PHONY: bench-all
bench-all: ## Run every benchmark of the pages from one build; figures in build/bench (hours; QUICK=1 to try it)
	@scripts/setup.sh test
	@scripts/setup-slurm.sh
	@rm -rf build/bench
	@$(MAKE) --no-print-directory build
	@QUICK='$(QUICK)' scripts/bench-all.sh $(policy_benches:bench-%=%)

.PHONY: clean
clean: ## Remove what was built; tools in the user's cache and Go's own cache stay
	rm -rf build

.PHONY: bench-forecast bench-forecast-scale
bench-forecast: ## Measure how accurate forecasts are, on real training curves (CURVES=<folder> scores others)
	@mkdir -p build/bench
	go run ./test/bench/forecast -out build/bench/$@.json $(if $(CURVES),-curves "$(CURVES)")

.PHONY: bench-live-forecast
bench-live-forecast: ## Measure how many intervals of running trainings hold (needs PyTorch and a quiet machine)
	@scripts/setup.sh test
	@mkdir -p build/bench
	TRAINYARD_LIVE_FORECAST=$(CURDIR)/build/bench/bench-live-forecast.json go test ./test/e2e -run '^TestForecastsOfRealTrainings$$' -count=1 -v

bench-forecast-scale: ## Measure what forecasts of 10,000 running jobs cost (JOBS=1000 for fewer)
	@mkdir -p build/bench
	go run ./test/bench/forecast -scale -out build/bench/$@.json $(if $(JOBS),-jobs $(JOBS))
