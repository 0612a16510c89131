package hub

import (
	"sync"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// watchers wake callers who wait for news of a task. A wake-up may be for
// nothing; the database is looked at again each time.
type watchers struct {
	mu     sync.Mutex                      // guards byTask
	byTask map[string]map[wait.Signal]bool // true for those who wait for its end only
}

// add returns what wakes a caller who waits for any news of task, or for its end only.
func (w *watchers) add(task string, end bool) wait.Signal {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := wait.NewSignal()
	if w.byTask[task] == nil {
		w.byTask[task] = map[wait.Signal]bool{}
	}
	w.byTask[task][news] = end
	return news
}

func (w *watchers) remove(task string, news wait.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byTask[task], news)
	if len(w.byTask[task]) == 0 {
		delete(w.byTask, task)
	}
}

func (w *watchers) notify(tasks []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, task := range tasks {
		for news := range w.byTask[task] {
			news.Send()
		}
	}
}

// notifyBegun wakes who waits for more than the end of task.
func (w *watchers) notifyBegun(task string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for news, end := range w.byTask[task] {
		if !end {
			news.Send()
		}
	}
}

// notifyAll wakes everybody.
func (w *watchers) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiting := range w.byTask {
		for news := range waiting {
			news.Send()
		}
	}
}
