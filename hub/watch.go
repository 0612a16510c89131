package hub

import "sync"

// watchers wake callers who wait for news of a task. A wake-up may be for
// nothing; the database is looked at again each time.
type watchers struct {
	mu     sync.Mutex // guards byTask
	byTask map[string]map[chan struct{}]bool
}

func (w *watchers) add(task string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	bell := make(chan struct{}, 1)
	if w.byTask[task] == nil {
		w.byTask[task] = map[chan struct{}]bool{}
	}
	w.byTask[task][bell] = true
	return bell
}

func (w *watchers) remove(task string, bell chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byTask[task], bell)
	if len(w.byTask[task]) == 0 {
		delete(w.byTask, task)
	}
}

func (w *watchers) notify(tasks []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, task := range tasks {
		for bell := range w.byTask[task] {
			ring(bell)
		}
	}
}

// notifyAll wakes everybody.
func (w *watchers) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, bells := range w.byTask {
		for bell := range bells {
			ring(bell)
		}
	}
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
