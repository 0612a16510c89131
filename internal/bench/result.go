package bench

import "github.com/spawnmesh/spawnmesh/internal/bench/record"

// A Figure is what one measurement found; times are milliseconds.
type Figure struct {
	InFlight int     `json:"in_flight"`
	Spawns   int     `json:"spawns"`
	PerSec   float64 `json:"spawns_per_second"`
	StartP50 float64 `json:"start_p50_ms"`
	StartP99 float64 `json:"start_p99_ms"`
	EndP50   float64 `json:"result_p50_ms"`
	EndP99   float64 `json:"result_p99_ms"`
	CPU      CPU     `json:"processor_time"`
}

// A Spawns is a whole run.
type Spawns struct {
	record.Origin
	Runtime string   `json:"runtime"`
	Figures []Figure `json:"figures"`
	Parts   []Part   `json:"parts"`
	Sum     float64  `json:"sum_of_parts_ms"` // on the way from order to start
	Ratio   float64  `json:"start_p50_at_1_to_sum"`
	Limit   float64  `json:"starts_per_second_alone,omitempty"` // shims and processes, with as many in flight as Most
	OfLimit float64  `json:"spawns_to_starts_alone,omitempty"`  // what the mesh does of that
}

// Most is the figure with the highest number in flight.
func (b *Spawns) Most() Figure {
	most := Figure{InFlight: 1}
	for _, f := range b.Figures {
		if f.InFlight >= most.InFlight {
			most = f
		}
	}
	return most
}
