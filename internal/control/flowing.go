package control

import (
	"io"
	"net/http"
	"time"
)

// leastFlow is how much of a body has to come within the time that others have for all of theirs.
const leastFlow = 64 << 10

// flowing is a body of any length, which has to come on.
type flowing struct {
	io.ReadCloser
	c      *http.ResponseController
	within time.Duration
	came   int // since it was given more time
}

func (f *flowing) more() { _ = f.c.SetReadDeadline(time.Now().Add(f.within)) }

// Read gives the sender more time with each piece.
func (f *flowing) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.came += n; f.came >= leastFlow {
		f.came = 0
		f.more()
	}
	return n, err
}
