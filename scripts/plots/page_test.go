package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRefresh(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	var r results
	r.Accept.Histories = append(r.Accept.Histories, struct {
		Ended    int
		InFlight int     `json:"in_flight"`
		P50      float64 `json:"p50_ms"`
		P99      float64 `json:"p99_ms"`
		CPU      float64 `json:"processor_time_ms"`
	}{Ended: 12345, InFlight: 1, P50: 1.5})
	write(t, page, "before\n<!-- figures: accept -->\nold\n<!-- end -->\nafter\n")
	for range 2 { // again is the same
		if err := refresh(page, r); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"before\n", "| 12,345 | 1 | 1.50 / 0.000 ms |", "\n<!-- end -->\nafter\n"} {
			if strings.Count(string(text), want) != 1 {
				t.Errorf("want %q once in:\n%s", want, text)
			}
		}
		if strings.Contains(string(text), "old") {
			t.Errorf("the old table is still there:\n%s", text)
		}
	}

	write(t, page, "<!-- figures: nothing -->\n<!-- end -->\n")
	if err := refresh(page, r); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a place without a table: %v", err)
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target target
		want   string
	}{
		{target{value: 1, limit: 1, atMost: true}, "met"},
		{target{value: 1.1, limit: 1, atMost: true}, "**missed**"},
		{target{value: 2, limit: 2}, "met"},
		{target{value: 1.9, limit: 2}, "**missed**"},
	} {
		if got := c.target.met(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.target, got, c.want)
		}
	}
}

// A run that did not say how long it took is no reason to leave out what it has missed; nor is a median that is met.
func TestTargetsOfRuns(t *testing.T) {
	var r results
	for text, into := range map[string]any{
		`{"webhooks": 50, "followed": [{"clients": 1000, "events": 2000, "deliveries": 500}]}`:                                        &r.Follow,
		`{"p50_ratio": 1, "processor_time_ratio": 2, "histories": [{"ended": 1000, "p99_ms": 10}, {"ended": 1000000, "p99_ms": 13}]}`: &r.Accept,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, l := range append(ofAccept(r.Accept), ofFollow(r.Follow)...) {
		got = append(got, two(l.value)+" "+l.met())
	}
	if want := "1.00 met, 1.30 **missed**, 2.00 **missed**, 0.25 **missed**"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
