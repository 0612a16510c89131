package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A memory is what a contender took at most while it worked, in MiB; zeros where
// there is no /proc.
type memory struct {
	Client float64 // resident set
	Server float64 // proportional set, the sum over the server's processes
}

// watch samples the memory of a contender and of the server until the function
// it returns is called, and once more then. It returns the most that was seen.
func watch(client, server int) func() memory {
	var most memory
	sample := func() {
		most.Client = max(most.Client, field(client, "status", "VmRSS:"))
		sum := 0.0
		for _, pid := range append(children(server), server) {
			sum += field(pid, "smaps_rollup", "Pss:")
		}
		most.Server = max(most.Server, sum)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				sample()
				return
			case <-tick.C:
				sample()
			}
		}
	}()
	return func() memory {
		close(stop)
		<-done
		return most
	}
}

// field returns a number of KiB in a file of a process, in MiB; 0 if the process
// is gone or there is no such file.
func field(pid int, file, name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) > 1 && string(words[0]) == name {
			kib, _ := strconv.ParseFloat(string(words[1]), 64) // a kernel that prints no number has nothing to say
			return kib / 1024
		}
	}
	return 0
}

// children returns the processes whose parent is pid.
func children(pid int) []int {
	var list []int
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a valid one
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …, and the name may hold anything.
		words := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(words) < 2 || string(words[1]) != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			list = append(list, child)
		}
	}
	return list
}
