package main

import "time"

// results are everything that make bench found, as far as it is shown. Times are
// milliseconds, memory is KiB, unless a name says otherwise.
type results struct {
	Spawn, Noop    spawnRun
	Bare           bareRun
	Nex            nexRun
	Idle           idleRun
	Follow         followRun
	Accept         acceptRun
	Read           readRun
	Claim, Shipped claimRun
	Curve          curveRun
	Go             goRun
}

// An origin says when and where something was measured.
type origin struct {
	At      time.Time
	Machine string
	Load    float64 `json:"load_average"`
}

type spawnRun struct {
	origin
	Figures []spawnFigure
	Parts   []struct {
		Name  string
		MS    float64
		Times int
	}
	Sum     float64 `json:"sum_of_parts_ms"`
	Ratio   float64 `json:"start_p50_at_1_to_sum"`
	Limit   float64 `json:"starts_per_second_alone"`
	OfLimit float64 `json:"spawns_to_starts_alone"`
}

type spawnFigure struct {
	InFlight  int `json:"in_flight"`
	Spawns    int
	PerSec    float64 `json:"spawns_per_second"`
	StartP50  float64 `json:"start_p50_ms"`
	StartP99  float64 `json:"start_p99_ms"`
	ResultP50 float64 `json:"result_p50_ms"`
	ResultP99 float64 `json:"result_p99_ms"`
	CPU       struct {
		Hub           float64 `json:"hub_ms"`
		HubPostgres   float64 `json:"hub_postgres_ms"`
		Spoke         float64 `json:"spoke_ms"`
		SpokePostgres float64 `json:"spoke_postgres_ms"`
	} `json:"processor_time"`
}

func (f spawnFigure) cpu() float64 {
	return f.CPU.Hub + f.CPU.HubPostgres + f.CPU.Spoke + f.CPU.SpokePostgres
}

type bareRun struct {
	origin
	Rounds []struct {
		Ours   spawnFigure
		Bare   bareFigure
		Result bareFigure `json:"bare_with_result"`
	}
	Medians struct {
		Ours            float64 `json:"ours_ms"`
		Bare            float64 `json:"bare_ms"`
		Result          float64 `json:"bare_with_result_ms"`
		Ratio           float64
		RatioWithResult float64 `json:"ratio_with_result"`
	}
}

type bareFigure struct {
	InFlight int     `json:"in_flight"`
	PerSec   float64 `json:"spawns_per_second"`
	CPU      float64 `json:"processor_time_ms"`
}

type nexRun struct {
	origin
	Wait   float64 `json:"auction_wait_ms"`
	Rounds []struct {
		Ours spawnFigure
		Nex  struct {
			InFlight int     `json:"in_flight"`
			StartP50 float64 `json:"start_p50_ms"`
			StartP99 float64 `json:"start_p99_ms"`
		}
	}
	Ours  float64 `json:"ours_per_second"`
	Nex   float64 `json:"nex_per_second"`
	Ratio float64
}

// followRun is a hub that programs follow.
type followRun struct {
	origin
	Rate     int `json:"requests_per_s"`
	Webhooks int
	Window   float64 `json:"window_s"`
	Followed []struct {
		Clients   int     `json:"clients"`
		P50       float64 `json:"request_p50_ms"`
		P99       float64 `json:"request_p99_ms"`
		Events    int     `json:"events"`
		Made      int     `json:"made"`
		Seconds   float64 `json:"seconds"`
		EventP50  float64 `json:"event_p50_ms"`
		EventP99  float64 `json:"event_p99_ms"`
		Told      int     `json:"deliveries"`
		HookP50   float64 `json:"delivery_p50_ms"`
		HookP99   float64 `json:"delivery_p99_ms"`
		RSS       float64 `json:"rss_kib"`
		PerClient float64 `json:"rss_kib_per_client"`
		CPU       float64 `json:"cpu_percent"`
	}
}

type idleRun struct {
	origin
	Settle float64 `json:"settle_s"`
	Window float64 `json:"window_s"`
	Idle   []idle
}

type idle struct {
	Name        string
	Spokes      int
	RSS         float64 `json:"rss_kib"`
	PSS         float64 `json:"pss_kib"`
	Postgres    float64 `json:"postgres_pss_kib"`
	CPU         float64 `json:"cpu_percent"`
	PostgresCPU float64 `json:"postgres_cpu_percent"`
}

type acceptRun struct {
	origin
	Histories []struct {
		Ended    int
		InFlight int     `json:"in_flight"`
		P50      float64 `json:"p50_ms"`
		P99      float64 `json:"p99_ms"`
		CPU      float64 `json:"processor_time_ms"`
	}
	Ratio    float64 `json:"p50_ratio"`
	CPURatio float64 `json:"processor_time_ratio"`
	Many     float64 `json:"processor_time_ratio_many"`
}

type readRun struct {
	origin
	Small, Large readSize
	Questions    []struct {
		Name         string
		Small, Large struct {
			P50 float64 `json:"p50_ms"`
			P99 float64 `json:"p99_ms"`
		}
		P50 float64 `json:"p50_ratio"`
		P99 float64 `json:"p99_ratio"`
	}
}

type readSize struct{ Ended, Running int }

type claimRun struct {
	origin
	Jobs       int
	Server     map[string]string
	Contenders map[string]struct{ Version, Settings string }
	Rounds     []map[string]map[string]float64
	Medians    map[string]map[string]float64
	Verdicts   []struct {
		Target       string
		Ratio, Limit float64
		AtMost       bool `json:"at_most"`
		Met          bool
	}
}

type curveRun struct {
	origin
	Settings string
	Points   []curvePoint
}

type curvePoint struct {
	Name                      string
	Ready, Unclaimable, Ended int
	Claims                    int
	P50                       float64 `json:"claim_p50_ms"`
	P99                       float64 `json:"claim_p99_ms"`
	Batch                     float64 `json:"claim_of_100_p50_ms_per_task"`
	Show                      float64 `json:"show_p50_ms"`
	ListP50                   float64 `json:"list_p50_ms"`
	ListP99                   float64 `json:"list_p99_ms"`
}

type goRun struct {
	origin
	Benchmarks []struct {
		Package string
		Name    string
		Values  map[string]float64 // by unit
	}
}
