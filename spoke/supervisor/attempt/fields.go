package attempt

import "time"

// The body of a message is a row of fields: numbers of eight bytes, texts with
// their length in four before them, lists with their count.

type writer []byte

func (w *writer) number(n int64) {
	for shift := 56; shift >= 0; shift -= 8 {
		*w = append(*w, byte(n>>shift))
	}
}

func (w *writer) flag(f bool) {
	if f {
		*w = append(*w, 1)
	} else {
		*w = append(*w, 0)
	}
}

func (w *writer) count(n int) { *w = append(*w, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)) }

func (w *writer) text(s string) {
	w.count(len(s))
	*w = append(*w, s...)
}

func (w *writer) texts(list []string) {
	w.count(len(list))
	for _, s := range list {
		w.text(s)
	}
}

func (w *writer) numbers(list []int64) {
	w.count(len(list))
	for _, n := range list {
		w.number(n)
	}
}

func (w *writer) limits(l Limits) {
	for _, n := range []int64{l.Memory, l.Pids, int64(l.CPU), l.CPUs, l.Files, l.Disk, l.Inodes, l.FileSize, l.Written, int64(l.Idle)} {
		w.number(n)
	}
}

func (w *writer) confine(c Confine) {
	w.number(c.User.ID)
	w.number(c.User.Reaper)
	w.flag(c.Landlock)
	w.texts(c.Read)
	w.texts(c.Write)
	w.flag(c.AnyPort)
	w.numbers(c.Ports)
	w.texts(c.Wrap)
}

// A reader takes fields from a body. After the first that is not there every other
// is zero, and end says so.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.rest, r.bad = nil, true
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) number() (n int64) {
	for _, b := range r.take(8) {
		n = n<<8 | int64(b)
	}
	return n
}

func (r *reader) flag() bool {
	b := r.take(1)
	if len(b) == 1 && b[0] > 1 {
		r.bad = true
	}
	return len(b) == 1 && b[0] == 1
}

func (r *reader) count() (n int) {
	for _, b := range r.take(4) {
		n = n<<8 | int(b)
	}
	return n
}

func (r *reader) text() string {
	return string(r.take(r.count()))
}

// texts makes no room for more than can follow.
func (r *reader) texts() []string {
	n := r.count()
	if n < 0 || n > len(r.rest)/4 {
		r.rest, r.bad = nil, true
	}
	if r.bad || n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.text())
	}
	return list
}

// numbers makes no room for more than can follow.
func (r *reader) numbers() []int64 {
	n := r.count()
	if n < 0 || n > len(r.rest)/8 {
		r.rest, r.bad = nil, true
	}
	if r.bad || n == 0 {
		return nil
	}
	list := make([]int64, 0, n)
	for range n {
		list = append(list, r.number())
	}
	return list
}

func (r *reader) limits() Limits {
	return Limits{Memory: r.number(), Pids: r.number(), CPU: time.Duration(r.number()), CPUs: r.number(), Files: r.number(),
		Disk: r.number(), Inodes: r.number(), FileSize: r.number(), Written: r.number(), Idle: time.Duration(r.number())}
}

func (r *reader) confine() Confine {
	return Confine{
		User: User{ID: r.number(), Reaper: r.number()}, Landlock: r.flag(),
		Read: r.texts(), Write: r.texts(), AnyPort: r.flag(), Ports: r.numbers(), Wrap: r.texts(),
	}
}

// end is an ErrGarbled unless all fields were there and nothing is left.
func (r *reader) end() error {
	if r.bad || len(r.rest) > 0 {
		return ErrGarbled
	}
	return nil
}
