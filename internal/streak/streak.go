// Package streak tells a person once that something which is done again and again keeps failing.
package streak

import (
	"fmt"
	"sync"
	"time"
)

// patience is how many tries in a row fail before they are said to keep failing.
const patience = 3

// Failures are those of tries since the last that went well. The zero value is ready to use.
type Failures struct {
	mu    sync.Mutex
	tries int
	last  error
	since time.Time
}

// Note takes how a try ended. It is news that tries keep failing, or do so no more.
func (f *Failures) Note(err error) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = err
	if err == nil {
		news = f.tries >= patience
		f.tries = 0
		return news
	}
	if f.tries++; f.tries == 1 {
		f.since = time.Now()
	}
	return f.tries == patience
}

// Err is why the last try failed, and since when all have, while they keep failing.
func (f *Failures) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries < patience {
		return nil
	}
	return fmt.Errorf("%w (%d tries since %s)", f.last, f.tries, f.since.Format(time.DateTime))
}
