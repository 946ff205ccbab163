# What to run, and when: `make help`. .ci/run and .ci/campaign are made of these.

GO       ?= go
FUZZTIME ?= 30s
COUNT    ?= 6
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint

.PHONY: help
help: ## list what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Tests have levels, see internal/testlevel: make test runs level quick, as go test ./... does. The targets of .ci/run run
# level full, and those of .ci/campaign level campaign.
FULL     := HOLDFAST_TEST_LEVEL=full
CAMPAIGN := HOLDFAST_TEST_LEVEL=campaign
TALLY    := $(GO) run ./internal/tally

# Each script allocates in the server in memory. Less frequent garbage collection saves a quarter of the CPU time.
FEWER_GC := GOGC=400

# Virtual machines stand still for seconds while their host runs others. Tests that failed meanwhile are repeated.
REPEAT := HOLDFAST_TALLY_REPEAT=1

# The seed of a campaign; SEED=N make sim uses it again.
ifndef SEED
SEED := $(strip $(shell od -An -N4 -tu4 /dev/urandom))
endif
export SEED

.PHONY: test
test: ## level quick: needs only Go; tests that need a redis-server are skipped without one, and counted
	$(FEWER_GC) $(REPEAT) $(TALLY) ./lockcore ./middleware/... ./...

# The middlewares run one at a time: their tests wait for servers, and a request has a time limit of a second.
.PHONY: full
full: ## level full, of all packages but internal/security, with the race detector, but for what has one goroutine
	$(FULL) $(FEWER_GC) $(REPEAT) $(TALLY) -run '^TestDifferential' ./internal/backend/memory
	$(FULL) $(FEWER_GC) $(REPEAT) $(TALLY) ./internal/schedule
	$(FULL) $(FEWER_GC) $(REPEAT) $(TALLY) -race -skip '^TestDifferential' -timeout 20m -p 2 -parallel 8 ./lockcore ./locktest $$($(GO) list ./... | grep -vE 'internal/(security|schedule)$$|/middleware/')
	$(FULL) $(FEWER_GC) $(REPEAT) $(TALLY) -race -timeout 20m -p 1 -parallel 8 ./middleware/...

.PHONY: security
security: ## rights, TLS, poisoned data, forged messages, telemetry
	$(FULL) $(REPEAT) $(TALLY) -count=1 ./internal/security

.PHONY: acl
acl: ## tests on real servers with the least rights
	HOLDFAST_TEST_ACL=1 HOLDFAST_TEST_REAL_ONLY=1 $(FULL) $(REPEAT) $(TALLY) -count=1 ./lockcore ./doctor ./middleware/asynqmw ./middleware/cronmw ./fence

.PHONY: newer
newer: ## tests on real servers, on REDIS_SERVER, a program of another version
	HOLDFAST_TEST_REAL_ONLY=1 $(FULL) $(REPEAT) $(TALLY) -count=1 -parallel 8 ./lockcore ./internal/backend/... ./doctor ./locktest ./fence ./cmd/holdfast

.PHONY: lint
lint: ## golangci-lint, from tools/go.mod, on every module, and luacheck on the scripts if it is installed; zero findings
	$(GO) test -count=1 ./internal/backend/redis/scripts
	$(LINT) run ./...
	cd bench && $(GO) tool -modfile=../tools/go.mod golangci-lint run ./...
	cd examples/observability && $(GO) tool -modfile=../../tools/go.mod golangci-lint run ./...
	cd internal/sqltest && $(GO) tool -modfile=../../tools/go.mod golangci-lint run ./...
	cd examples/inventory && $(GO) tool -modfile=../../tools/go.mod golangci-lint run ./...
	cd examples/frameworks && $(GO) tool -modfile=../../tools/go.mod golangci-lint run ./...

.PHONY: fmt
fmt: ## format the code as lint wants it
	$(LINT) fmt ./...

.PHONY: campaign
campaign: ## all that is random or measures real time under faults, about an hour: the next nine targets, with one SEED
	.ci/campaign

.PHONY: sim
sim: ## 150 seeds of the simulation, and 5 with the race detector; go test ./internal/sim -args -seed N runs one again
	$(CAMPAIGN) $(FEWER_GC) $(TALLY) ./internal/sim -count=1 -v -timeout 40m -args -seed $(SEED) -seeds 150
	$(CAMPAIGN) $(FEWER_GC) $(TALLY) -race ./internal/sim -count=1 -v -timeout 20m -run TestSim -args -seed $$(($(SEED) + 150)) -seeds 5

.PHONY: schedule
schedule: ## 500,000 random schedules of commands that are lost, late or run twice, on the scripts; known mistakes in them; go test ./internal/schedule -args -seed N runs one again
	$(CAMPAIGN) $(FEWER_GC) $(TALLY) ./internal/schedule -count=1 -v -timeout 30m -args -seed $(SEED) -schedules 500000

.PHONY: long
long: ## level campaign of other packages, shuffled: cancellation at every packet, a million operations compared with the rules, much load, the cost of memory, workers killed
	$(CAMPAIGN) $(FEWER_GC) $(REPEAT) $(TALLY) -count=1 -shuffle=$(SEED) -timeout 30m ./lockcore ./guard
	$(CAMPAIGN) $(FEWER_GC) $(REPEAT) $(TALLY) -count=1 -shuffle=$(SEED) -timeout 20m ./internal/backend/memory -args -seed $(SEED)
	$(CAMPAIGN) $(FEWER_GC) $(REPEAT) $(TALLY) -count=1 -shuffle=$(SEED) -timeout 20m -p 1 ./middleware/asynqmw ./middleware/cronmw
	cd internal/sqltest && $(CAMPAIGN) $(REPEAT) $(GO) run github.com/holdfast-go/holdfast/internal/tally -count=1 -timeout 20m -run TestOnceKills .

.PHONY: history
history: ## three million operations on a real server, and three million of readers and writers, checked with porcupine and a fenced register
	$(CAMPAIGN) $(TALLY) ./internal/history -count=1 -v -timeout 20m -args -ops 3000000

.PHONY: signals
signals: ## 60 workers that are stopped and 90 that are killed, at named points
	$(CAMPAIGN) $(TALLY) ./internal/signals -count=3 -v -timeout 10m

.PHONY: faults
faults: ## what a real server may do to its clients, under load
	$(CAMPAIGN) $(TALLY) ./internal/serverfault -race -count=1 -v -timeout 10m

.PHONY: topology
topology: ## failovers of Sentinel and Cluster, and 100 slots that move, under load
	$(CAMPAIGN) $(TALLY) ./internal/topology -count=1 -v -timeout 20m -args -failovers 2 -migrations 100

.PHONY: soak
soak: ## contention between 1, 3 and 8 processes on a real server, a minute each, some of them killed; two minutes of shares, processes stopped and cut off too; then HTTP servers
	$(CAMPAIGN) $(TALLY) ./internal/soak -count=1 -v -timeout 20m -args -for 1m -procs 1,3,8 -kill 4s -at-least 2000 -shares 2m
	$(CAMPAIGN) $(TALLY) ./internal/httpsoak -count=1 -v -timeout 10m -args -keys 1000 -clients 50 -kill 500ms

.PHONY: planted
planted: ## plant known mistakes, one at a time: a named test must find each
	$(GO) run ./internal/planted

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

.PHONY: bench
bench: ## holdfast against other locks, on a real server; the numbers stay in bench/RESULTS.md and bench/chart.svg
	$(GO) -C bench run . -md RESULTS.md -svg chart.svg

.PHONY: pictures
pictures: ## draw bench/chart.svg again, from the figures of bench/RESULTS.md
	$(GO) -C bench test -count=1 -run '^TestChartOfResults$$' . -args -update

.PHONY: bench-faults
bench-faults: ## how long two are inside when networks fail, beside other locks; the numbers stay in bench/FAULTS.md
	$(GO) -C bench run . -scenario partition,lost-answer -md FAULTS.md

.PHONY: bench-test
bench-test: ## vet and tests of the module that make bench runs
	$(GO) -C bench vet ./...
	cd bench && $(FULL) $(GO) run github.com/holdfast-go/holdfast/internal/tally -count=1 ./...

.PHONY: observability-test
observability-test: ## vet and tests of the module that exposes the metrics to Prometheus
	$(GO) -C examples/observability vet ./...
	cd examples/observability && $(FULL) $(GO) run github.com/holdfast-go/holdfast/internal/tally -race -count=1 ./...

.PHONY: frameworks-test
frameworks-test: ## vet and tests of the programs with chi, gin, echo, fiber and gRPC
	$(GO) -C examples/frameworks vet ./...
	cd examples/frameworks && $(FULL) $(GO) run github.com/holdfast-go/holdfast/internal/tally -race -count=1 ./...

.PHONY: sql-test
sql-test: ## vet and tests of fence.SQL, sqlonce and examples/inventory on SQLite, and on a PostgreSQL and a MariaDB that they start; skipped without
	$(GO) -C internal/sqltest vet ./...
	cd internal/sqltest && $(FULL) $(REPEAT) $(GO) run github.com/holdfast-go/holdfast/internal/tally -race -timeout 20m -count=1 ./...
	$(GO) -C examples/inventory vet ./...
	cd examples/inventory && $(FULL) $(REPEAT) $(GO) run github.com/holdfast-go/holdfast/internal/tally -race -count=1 ./...

.PHONY: gobench
gobench: ## every Go benchmark COUNT (6) times, summed up by benchstat; the numbers stay in bench.txt
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) ./... > bench.txt
	$(GO) tool -modfile=tools/go.mod benchstat bench.txt

.PHONY: examples
examples: ## run the examples worker, cron, stripes, handover and inventory, without a server
	$(GO) run ./examples/worker
	$(GO) run ./examples/cron
	$(GO) run ./examples/stripes
	$(GO) run ./examples/handover
	$(GO) -C examples/inventory run .

.PHONY: vuln
vuln: ## govulncheck; it fetches its database
	$(GO) tool -modfile=tools/go.mod govulncheck ./...

# Not bench: go mod tidy wants the modules that the tests of its dependencies import, and some of redsync's can no longer be fetched. Its
# go.mod changes only by hand, with go -C bench get.
.PHONY: tidy
tidy: ## go.mod and go.sum of this module, of tools, examples/observability, examples/inventory, examples/frameworks and internal/sqltest
	$(GO) mod tidy
	cd tools && $(GO) mod tidy
	cd examples/observability && $(GO) mod tidy
	cd internal/sqltest && $(GO) mod tidy
	cd examples/inventory && $(GO) mod tidy
	cd examples/frameworks && $(GO) mod tidy

.PHONY: tidy-check
tidy-check: ## fail if tidy would change something
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd examples/observability && $(GO) mod tidy -diff
	cd internal/sqltest && $(GO) mod tidy -diff
	cd examples/inventory && $(GO) mod tidy -diff
	cd examples/frameworks && $(GO) mod tidy -diff
