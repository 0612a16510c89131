# The README's two commands are demo and test; both find or install Postgres first.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# go stamps the commit into what it builds; VERSION=... says it where there is no checkout, as in a container.
# What -s -w leaves out is not made either, which would be a sixth of the compiler's work.
# TAGS=crashpoints is what tests run.
BIN := bin/spawnmesh
TAGS :=
VERSION ?=
GO_BUILD = CGO_ENABLED=0 go build -buildvcs=auto -trimpath $(if $(TAGS),-tags $(TAGS)) -gcflags=all=-dwarf=false -ldflags='-s -w $(if $(VERSION),-X main.linked=$(VERSION))'

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# At a terminal the demo is a job of its own (set -m): an interrupt is for it, not for make, and it ends with 0.
demo: build ## a tour: a hub and two spokes on this machine, for real
	@scripts/ensure-postgres
	@if [ -t 0 ]; then set -m; fi; $(BIN) demo

# Tests start database servers of their own, whatever DATABASE_URL names; the
# race detector needs a C compiler. The longest packages come first, so that none of them is left to run alone.
# What computes and what is not ours is not watched for races, which made it three to eight times slower. -l: generic
# code of the library that is compiled into such a package, sync.Map's above all, would be used by our packages too.
# -w: nobody debugs these programs, and what a debugger reads is a quarter of the linker's work. check vets everything.
# A program with the race detector would sleep for a second before it exits; shims are such programs.
LONGEST = ./cmd/spawnmesh ./spoke ./store/backlog ./internal/meshtest ./hub ./store ./store/postgres ./spoke/supervisor ./federation/transport
UNWATCHED = encoding/json encoding/base64 github.com/nats-io/nats-server/v2/... github.com/klauspost/compress/... github.com/minio/highwayhash
RACE = -race -gcflags='crypto/internal/fips140/...=-race=false' $(UNWATCHED:%=-gcflags='%=-race=false -l') -ldflags=-w -vet=off -p 3 -timeout 45m
test: ## pass the tests, with the race detector: each promise once, about 12 minutes on two cores, compiling included
	@DATABASE_URL= scripts/ensure-postgres
	@scripts/ensure-cc
	@CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go run ./scripts/gotest -quick $(RACE) $(LONGEST) ./...

test-long: ## the tests that scripts/gotest/long.txt names, which test leaves out or makes smaller: about 15 minutes
	@DATABASE_URL= scripts/ensure-postgres
	@scripts/ensure-cc
	@CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 SPAWNMESH_LONG=1 go run ./scripts/gotest -long $(RACE)

# Node is no prerequisite of "make test": what needs it has a build tag, and .ci/run calls this where node is.
test-js: ## the spoke in JavaScript keeps the protocol, and broken ones are found (needs node 20 and npm)
	@DATABASE_URL= scripts/ensure-postgres
	go vet -tags node ./cmd/spawnmesh
	go test -tags node -count=1 -timeout 20m -run 'TestTheJavaScriptSpoke|TestConformanceFinds' ./cmd/spawnmesh

# What npm installs goes to bin/agents and is used from there; no script of a package is run.
test-agents: ## coding agents: one made with the SDK of the protocol, and real ones beside a model of tests (needs node 20 and npm; 300 MB)
	@command -v node >/dev/null && command -v npm >/dev/null || { echo 'node and npm are not on the PATH; on Debian: apt-get install nodejs npm; then: make test-agents' >&2; exit 1; }
	@DATABASE_URL= scripts/ensure-postgres
	@mkdir -p bin/agents && cp internal/acptest/peer/*.* bin/agents
	@cd bin/agents && { cmp -s package-lock.json installed || { npm ci --ignore-scripts --no-audit --no-fund && cp package-lock.json installed; }; }
	go vet -tags agents ./cmd/spawnmesh
	go test -tags agents -count=1 -timeout 20m -run 'TestAPeerOfTheProtocol|TestARealCodingAgent' ./cmd/spawnmesh

# Without the race detector; packages that need servers take part with one test, which walks through the README.
SHORT = ./signing ./commands ./federation/join ./spoke/policy ./spoke/runtime ./internal/control ./internal/layout ./scripts/...
short: ## the quick tests and one walk through the mesh, under a minute once compiled
	@DATABASE_URL= scripts/ensure-postgres
	@go run ./scripts/gotest -count=1 $(SHORT)
	@go run ./scripts/gotest -count=1 -run '^TestTheReadmeByHand$$' ./cmd/spawnmesh

MODULES = store/peers internal/bench/peers scripts/plots
check: ## what CI runs: formatting, vet, staticcheck, build without cgo, all tests
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'run gofmt -w on these'; exit 1; }
	go vet ./...
	go vet -tags crashpoints ./...
	for m in $(MODULES); do (cd $$m && go vet ./... && go build -o /dev/null ./...) || exit 1; done
	@$(MAKE) --no-print-directory lint generated build test test-long test-modules

test-modules: ## the tests of the modules of their own: peers and plots
	@DATABASE_URL= scripts/ensure-postgres
	for m in $(MODULES); do (cd $$m && go test -count=1 ./...) || exit 1; done

# A module of its own, so that the product does not depend on its tools.
lint: ## staticcheck, over the product and its peers
	@cd scripts/tools && go build -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./... && bin/staticcheck -tags crashpoints ./...
	for m in $(MODULES); do (cd $$m && $(CURDIR)/bin/staticcheck ./...) || exit 1; done

generated: ## hub/api/api.gen.go is what its document says (go generate ./hub/api makes it)
	@cd scripts/tools && go build -o ../../bin/oapi-codegen github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
	@cd hub/api && ../../bin/oapi-codegen -config codegen.yaml -o ../../bin/api.generated openapi.yaml && cmp ../../bin/api.generated api.gen.go

build: ## build bin/spawnmesh
	@command -v go >/dev/null || { echo 'go is not on the PATH; this needs Go, of the version in go.mod or newer: https://go.dev/dl' >&2; exit 1; }
	@echo 'building $(BIN) ...'
	@$(GO_BUILD) -o $(BIN) ./cmd/spawnmesh

# Results go to docs/bench as JSON; plots and the tables of docs/benchmarks.md are made of them. QUICK=1 shows in a few
# minutes that everything works; its figures are worth little. NEX=FILE is the program of a peer that is not installed here.
RESULTS = $(CURDIR)/docs/bench
, := ,
bench: ## measure everything, about an hour: JSON, plots and tables in docs (QUICK=1: a few minutes)
	@$(MAKE) --no-print-directory bench-go bench-spawn $(if $(NEX),bench-nex) bench-idle bench-follow bench-read bench-accept bench-claim bench-curve bench-plots

bench-go: ## the benchmarks of single packages
	@DATABASE_URL= scripts/ensure-postgres
	go test -run '^$$' -bench '$(if $(QUICK),Seal|Open|Shim|Levels,Seal|Open|Start|Parallel|Kill|Shim|Claim|Work|Levels)' -benchtime $(if $(QUICK),100x,2s) ./signing ./spoke/supervisor ./spoke/isolation $(if $(QUICK),,./store/backlog) | (cd scripts/plots && go run ./gobench $(RESULTS)/go.json)

bench-spawn: build ## spawns, with and without a process, and beside a bare pipeline
	@DATABASE_URL= scripts/ensure-postgres
	$(BIN) bench spawn --in-flight 1,8,64,256 $(if $(QUICK),--count 300) -o json > $(RESULTS)/spawn.new && mv $(RESULTS)/spawn.new $(RESULTS)/spawn.json
	$(BIN) bench spawn --in-flight 1,8,64,256 $(if $(QUICK),--count 300) --runtime noop -o json > $(RESULTS)/noop.new && mv $(RESULTS)/noop.new $(RESULTS)/noop.json
	cd internal/bench/peers && go run . bare $(if $(QUICK),-rounds 1 -count 1000) -json $(RESULTS)/bare.json

bench-nex: build ## starts beside Nex, whose program NEX names
	@DATABASE_URL= scripts/ensure-postgres
	cd internal/bench/peers && go run . nex -nex '$(NEX)' -in-flight 16 $(if $(QUICK),-rounds 1 -count 300,-count 1000) -json $(RESULTS)/nex.json

bench-idle: build ## memory and processor time of what is idle
	@DATABASE_URL= scripts/ensure-postgres
	$(BIN) bench idle --spokes $(if $(QUICK),1,1$(,)10$(,)20) -o json > $(RESULTS)/idle.new && mv $(RESULTS)/idle.new $(RESULTS)/idle.json

bench-follow: build ## requests to a hub beside 1,000 programs and 50 webhooks that are told of its events
	@DATABASE_URL= scripts/ensure-postgres
	$(BIN) bench follow --rate 200 --webhooks 50 $(if $(QUICK),--window 5s) -o json > $(RESULTS)/follow.new && mv $(RESULTS)/follow.new $(RESULTS)/follow.json

bench-transfer: ## orders beside an input of 1 GiB, over a link that is whole, and one that is cut ten times
	@DATABASE_URL= scripts/ensure-postgres
	SPAWNMESH_BLOB_BYTES=$(if $(QUICK),268435456,1073741824) go test -run '^$$' -bench OrdersBesideAnInput -benchtime 1x ./internal/meshtest

bench-webhooks: ## deliveries a second to 50 webhooks
	@DATABASE_URL= scripts/ensure-postgres
	go test -run '^$$' -bench Webhooks -benchtime $(if $(QUICK),3x,20x) ./hub/webhook

bench-read: build ## what is asked of a hub that knows of a million agents, 10,000 of which run
	@mkdir -p $(RESULTS)
	cd internal/bench/peers && go run . read $(if $(QUICK),-history 100000 -running 10000 -count 300,-count 2000) -json $(RESULTS)/read.json

bench-accept: build ## an order at a hub where a million have ended
	@DATABASE_URL= scripts/ensure-postgres
	cd internal/bench/peers && go run . accept $(if $(QUICK),-history 100000 -count 300,-count 2000) -json $(RESULTS)/accept.json

# A module of its own, so that the product does not depend on its peers.
bench-claim: ## the claim beside raw SKIP LOCKED, River and graphile-worker (needs node; PEERS='-without graphile' does not)
	@DATABASE_URL= scripts/ensure-postgres
	cd store/peers && go run . $(or $(PEERS),$(if $(QUICK),-jobs 10000 -rounds 1,-big)) -json $(RESULTS)/claim.json
	cd store/peers && go run . $(or $(PEERS),$(if $(QUICK),-jobs 10000 -rounds 1)) -settings shipped -json $(RESULTS)/claim-shipped.json

bench-curve: ## the claim as the backlog grows, and with 10 million ended tasks
	@DATABASE_URL= scripts/ensure-postgres
	cd store/peers && go run . curve $(if $(QUICK),-divide 4 -rounds 2) -json $(RESULTS)/curve.json

bench-plots: ## draw the plots and write the tables again, of the results that are there
	cd scripts/plots && go run . $(RESULTS) $(CURDIR)/docs/plots $(CURDIR)/docs/benchmarks.md

chaos: ## 1,000 spawns with 20 random kills, 10,000 claim races, long property tests; seeds are printed
	@DATABASE_URL= scripts/ensure-postgres
	SPAWNMESH_MODEL_CHECKS=300 SPAWNMESH_MODEL_STEPS=250 SPAWNMESH_RACE_ROUNDS=10000 SPAWNMESH_RACE_UNITS=2000 SPAWNMESH_KILL_ROUNDS=60 SPAWNMESH_POOL_ROUNDS=100000 SPAWNMESH_MEETINGS=1000 go test -count=1 -timeout 60m -v -run 'TestModel|TestRace|TestKillsWhileClaiming|TestPooled|TestNobodyWaitsInACircle' ./store/backlog
	TMPDIR=$${TMPDIR:-/tmp} SPAWNMESH_OUTAGE_BYTES=300000000 go test -count=1 -timeout 20m -v -run TestALongOutage ./spoke
	SPAWNMESH_MEETINGS=200 go test -count=1 -timeout 20m -v -run TestNoMessageWaitsInACircle ./store
	SPAWNMESH_RESTORES=1 SPAWNMESH_DISASTERS=100 SPAWNMESH_KEY_LOAD=600 go test -count=1 -timeout 30m -v -parallel 8 -run 'TestWhatWasRestoredGoesOnByItself|TestDisastersOneAfterTheOther|UnderLoad' ./internal/meshtest
	SPAWNMESH_MODEL_CHECKS=300 go test -count=1 -timeout 30m -v -run TestModelOfHubAndSpoke ./internal/meshtest
	TMPDIR=$${TMPDIR:-/tmp} SPAWNMESH_EVERYDAY=2 go test -count=1 -v -run TestEverydayAgents ./spoke
	SPAWNMESH_ESCAPES=500 go test -count=1 -timeout 30m -v -run TestNothingEscapes ./spoke/isolation
	SPAWNMESH_API_REQUESTS=10000 go test -count=1 -timeout 30m -v -run TestTheAPIIsWhatItsDocumentSays ./internal/meshtest
	SPAWNMESH_GUESSES=10000 go test -count=1 -v -run TestWhoGuessesIsSlowedDownAlone ./internal/listener
	SPAWNMESH_LOGINS=10000 go test -count=1 -v -run TestAFloodWithoutTokensKeepsNobodyOut ./hub
	TMPDIR=$${TMPDIR:-/tmp} SPAWNMESH_OUTPUT_BYTES=10737418240 SPAWNMESH_STOPPED=10m go test -count=1 -timeout 30m -v -run 'TestTheShimOfAnEndlessLine|TestASpokeThatIsStopped' ./cmd/spawnmesh
	TMPDIR=$${TMPDIR:-/tmp} SPAWNMESH_CHAOS_SPAWNS=1000 SPAWNMESH_CHAOS_KILLS=20 SPAWNMESH_CUT=60s go test -count=1 -timeout 60m -v -run 'TestRandomKills|TestLinkCut' ./cmd/spawnmesh

# On a disk: make test keeps what is temporary in memory, where there is plenty.
soak: ## half an hour of random faults on two hubs and four spokes; the seed is printed (SEED=N repeats one)
	@DATABASE_URL= scripts/ensure-postgres
	TMPDIR=$${TMPDIR:-/tmp} SPAWNMESH_SOAK_SECONDS=$(or $(SECONDS),1800) SPAWNMESH_SOAK_OUTPUT=$(or $(OUTPUT),300000000) SPAWNMESH_SOAK_PAUSE=400 SPAWNMESH_SOAK_SEED=$(or $(SEED),$(shell date +%s)) go test -count=1 -timeout 90m -v -run '^TestSoak$$' ./cmd/spawnmesh

mutants: ## break each promise in scripts/mutants/breaks.yaml and see its test fail (BREAKS='-run store' picks)
	@DATABASE_URL= scripts/ensure-postgres
	go run ./scripts/mutants $(BREAKS)

fuzz: ## fuzz every decoder, 30 s each
	@for f in FuzzOpen FuzzEnvelope FuzzHeader FuzzBase64 FuzzBody FuzzKeyFile; do go test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s -fuzzminimizetime 5s ./signing || exit 1; done
	go test -run '^$$' -fuzz '^FuzzToken$$' -fuzztime 30s -fuzzminimizetime 5s ./federation/join
	go test -run '^$$' -fuzz '^FuzzUnpack$$' -fuzztime 30s -fuzzminimizetime 5s ./federation/transport
	go test -run '^$$' -fuzz '^FuzzPolicy$$' -fuzztime 30s -fuzzminimizetime 5s ./spoke/policy
	go test -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 30s -fuzzminimizetime 5s ./commands

run: build ## run a hub in the foreground, in ./state/hub
	@scripts/ensure-postgres
	@mkdir -p state && chmod 711 state
	$(BIN) --data-dir state/hub hub run

.PHONY: help demo test test-long test-js test-agents test-modules short check lint build bench bench-go bench-spawn bench-nex bench-idle bench-follow bench-read bench-accept bench-webhooks bench-transfer bench-claim bench-curve bench-plots chaos soak mutants fuzz run
