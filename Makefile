# What to run, and when: `make help`. .ci/run and .ci/campaign are made of these.

GO       ?= go
FUZZTIME ?= 30s
TOOL     := $(GO) tool -modfile=$(CURDIR)/tools/go.mod

# go test, or gotestsum in .ci/run and .ci/campaign, which count the tests.
GOTEST   ?= $(GO) test

# Modules of their own, so that the root module needs only what users and its tests need.
MODULES  := postgres middleware/rivermw proof bench examples/frameworks examples/inventory examples/observability examples/river inspect/browsertest

# Tests have levels, see internal/testlevel: go test runs level quick.
FULL     := HOLDFAST_TEST_LEVEL=full
CAMPAIGN := HOLDFAST_TEST_LEVEL=campaign

# Each script allocates in the server in memory. Less frequent garbage collection saves a quarter of the CPU time.
FEWER_GC := GOGC=400

.PHONY: help
help: ## list what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: test
test: ## the quick tests; they need only Go (those that need a redis-server are skipped without one)
	$(FEWER_GC) $(GOTEST) ./...
	cd tools && $(GOTEST) ./count # the sizes of the pages, and the tests of each promise

# What has one goroutine runs without the race detector.
.PHONY: full
full: ## all tests of the library with the race detector, on real servers too; needs a redis-server
	$(FULL) $(FEWER_GC) $(GOTEST) -run '^TestDifferential' ./internal/backend/memory
	$(FULL) $(FEWER_GC) $(GOTEST) -race -skip '^TestDifferential' -timeout 20m -p 2 -parallel 8 ./lockcore ./internal/backend/redis ./locktest $$($(GO) list ./... | grep -vE '/(internal/security|middleware/.*)$$')
	$(FULL) $(FEWER_GC) $(GOTEST) -race -timeout 20m -p 1 -parallel 16 ./middleware/... # they wait for servers, within a second
	$(FULL) $(GOTEST) -count=1 ./internal/security

# Both ends of the range of versions are tested: go.mod has the oldest, which is what users are raised to.
.PHONY: servers
servers: ## the tests on real servers once more: with the fewest rights, on the redis-server named by REDIS_SERVER
	HOLDFAST_TEST_ACL=1 HOLDFAST_TEST_REAL_ONLY=1 $(FULL) $(FEWER_GC) $(GOTEST) -count=1 -parallel 8 ./lockcore ./internal/backend/... ./doctor ./locktest ./fence ./internal/cli ./middleware/asynqmw ./middleware/cronmw
	$(FULL) $(GOTEST) -count=1 -parallel 8 -run Rights ./internal/security

.PHONY: newer-postgres
newer-postgres: ## the tests on PostgreSQL once more, with the programs in the folder POSTGRES_BIN
	cd postgres && $(FULL) $(FEWER_GC) $(GOTEST) -count=1 -timeout 20m ./...

.PHONY: modules
modules: ## all tests of the other modules, and those of what uses a dependency at the newest versions (newest.mod); needs redis-server, PostgreSQL, PgBouncer, MariaDB and Prometheus
	$(FEWER_GC) $(GOTEST) -modfile=newest.mod ./doctor ./internal/backend/redis/... ./locktest ./middleware/asynqmw ./tracing/...
	set -e; for m in $(MODULES); do echo "-- $$m"; (cd $$m && $(FULL) $(FEWER_GC) $(GOTEST) -race -timeout 20m $$($(GO) list ./... | grep -v /proof/schedule)); done
	cd proof && $(FULL) $(FEWER_GC) $(GOTEST) ./schedule

.PHONY: lint
lint: ## check style, imports, go.mod and, if luacheck is there, the scripts, in every module; zero findings
	$(GO) test -count=1 ./internal/backend/redis/scripts
	set -e; for m in . tools $(MODULES); do (cd $$m && $(GO) mod tidy -diff); done
	$(GO) mod tidy -modfile=newest.mod -diff
	set -e; for m in . $(MODULES); do (cd $$m && $(TOOL) golangci-lint run ./...); done

.PHONY: fmt
fmt: ## format the code and tidy each go.mod as lint wants it
	set -e; for m in . $(MODULES); do (cd $$m && $(TOOL) golangci-lint fmt ./...); done
	set -e; for m in . tools $(MODULES); do (cd $$m && $(GO) mod tidy); done
	$(GO) mod tidy -modfile=newest.mod

EXAMPLES := worker flow cron stripes transfer

.PHONY: examples $(EXAMPLES:%=example-%) example-inventory
examples: $(EXAMPLES:%=example-%) example-inventory ## run the examples that need no server
$(EXAMPLES:%=example-%): example-%:
	$(GO) run ./examples/$*
example-inventory:
	$(GO) -C examples/inventory run .

.PHONY: campaign
campaign: ## the proof, one to two hours: random seeds, killed processes, failing servers, known mistakes; STAGES="sim chaos" runs a part of it
	.ci/campaign $(STAGES)

.PHONY: planted
planted: ## put known mistakes into the code, one at a time: a test must find each
	$(GO) -C proof run ./planted -root ..

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

.PHONY: bench
bench: ## compare holdfast with other locks on a real server, into bench/RESULTS.md, FAULTS.md and chart.svg; takes an hour and a quiet machine
	$(GO) -C bench run . -write .
