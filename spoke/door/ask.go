package door

import (
	"math"
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An Ask is a question as an agent asks it.
type Ask struct {
	Key        string   `json:"key"` // its own name of the question
	Text       string   `json:"text"`
	Options    []string `json:"options,omitempty"`
	Default    string   `json:"default,omitempty"`
	Data       string   `json:"data,omitempty"`
	DeadlineMS int64    `json:"deadline_ms,omitempty"` // from now on; 0 = a day
}

const (
	longestWait = 30 * time.Second // for an answer, in one request
	startTime   = 10 * time.Second // that the proof of a start may take to be stored: an agent can be quicker
)

func (d *Door) ask(r *http.Request, a Ask) (backlog.Question, error) {
	i := backlog.Inquiry{Key: a.Key, What: commands.Question{Text: a.Text, Options: a.Options, Default: a.Default, Data: a.Data}, For: commands.DefaultQuestionFor}
	if a.DeadlineMS != 0 {
		i.For = time.Duration(min(max(a.DeadlineMS, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	texts := []*string{&i.Key, &i.What.Text, &i.What.Default}
	for n := range i.What.Options {
		texts = append(texts, &i.What.Options[n])
	}
	if err := d.hideIn(r.Context(), i.Validate, &i.What.Data, texts...); err != nil {
		return backlog.Question{}, err
	}
	for until := time.Now().Add(startTime); ; {
		q, err := d.room.Backlog.Ask(r.Context(), d.room.Fence, i)
		if commands.CodeOf(err) != commands.NotReady || time.Now().After(until) {
			return q, err
		}
		select {
		case <-r.Context().Done():
			return q, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// await returns a question once it is closed, or as it stands after the wait. An attempt that was replaced waits for nothing.
func (d *Door) await(r *http.Request) (q backlog.Question, err error) {
	wait, err := waitOf(r.URL.Query().Get("wait"))
	if err != nil {
		return q, err
	}
	over := time.After(wait)
	next, leave := d.beginWaiting()
	defer leave()
	q, err = d.question(r)
	for err == nil && q.State == commands.QuestionOpen {
		select {
		case <-r.Context().Done():
			return q, r.Context().Err()
		case <-over:
			return q, nil
		case <-next.done:
		}
		switch {
		case next.err != nil:
			return q, next.err
		case !next.open[q.ID]:
			return d.question(r)
		}
		next = next.next
	}
	return q, err
}

// waitOf reads how long a request waits; longer than [longestWait] is cut.
func waitOf(text string) (time.Duration, error) {
	if text == "" {
		return longestWait, nil
	}
	asked, err := time.ParseDuration(text)
	if err != nil || asked < 0 {
		return 0, commands.Refuse(commands.Validation, "wait is a time such as 30s, not %q", commands.Clip(text))
	}
	return min(asked, longestWait), nil
}

// question is the one that is asked for, of the door's own agent.
func (d *Door) question(r *http.Request) (q backlog.Question, err error) {
	id := r.PathValue("question")
	unknown := commands.Refuse(commands.NotFound, "no question %s here", commands.Clip(id))
	if ids, ok := commands.NamedIDs(id); !ok || ids.Tail || ids.Low != ids.High {
		return q, unknown
	}
	q, err = d.room.Backlog.Question(r.Context(), id)
	if err == nil && q.Task != d.room.Fence.Task {
		err = unknown
	}
	return q, err
}

// withdraw closes a question that nobody needs to answer any more.
func (d *Door) withdraw(r *http.Request) (backlog.Question, error) {
	q, err := d.question(r)
	if err == nil {
		q, err = d.room.Backlog.Withdraw(r.Context(), d.room.Fence, q.ID)
	}
	return q, err
}
