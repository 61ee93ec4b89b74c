package tui

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// filter is what the list is narrowed to: every term must hold. The zero value lets everything through.
type filter struct {
	text  string // as typed
	terms []part
	timed bool // what it lets through changes with time alone
}

// part is one word of a filter.
type part struct {
	not   bool
	match func(*row, time.Time) bool
}

// filterKeys are the words that may stand before a colon.
const filterKeys = "state: kind: host: pid: is:"

// parseFilter reads a filter: words that must be found in the name, path or holder, state:dead, kind:lock,
// host:web02, pid:9120, is:waiting, beat>30s, beat<30s; a ! before any of them turns it round.
func parseFilter(s string) (filter, error) {
	f := filter{text: strings.TrimSpace(s)}
	for word := range strings.FieldsSeq(s) {
		t := part{}
		word, t.not = strings.CutPrefix(word, "!")
		if word == "" {
			return filter{}, errors.New("! needs a word")
		}
		var err error
		if t.match, err = parseTerm(word); err != nil {
			return filter{}, err
		}
		f.terms = append(f.terms, t)
		f.timed = f.timed || isTimed(strings.ToLower(word))
	}
	return f, nil
}

// isTimed reports whether what a word lets through changes with time alone.
func isTimed(word string) bool {
	return strings.HasPrefix(word, "state:") || strings.HasPrefix(word, "beat")
}

func parseTerm(word string) (func(*row, time.Time) bool, error) {
	if limit, ok := strings.CutPrefix(word, "beat>"); ok {
		return parseBeat(limit, func(age, limit time.Duration) bool { return age > limit })
	}
	if limit, ok := strings.CutPrefix(word, "beat<"); ok {
		return parseBeat(limit, func(age, limit time.Duration) bool { return age < limit })
	}
	field, value, found := strings.Cut(word, ":")
	value = strings.ToLower(value)
	switch {
	case !found:
		want := strings.ToLower(word)
		return func(r *row, _ time.Time) bool { return strings.Contains(r.haystack(), want) }, nil
	case value == "":
		return nil, fmt.Errorf("%s: wants a value", field)
	}
	switch strings.ToLower(field) {
	case "state":
		for s := verdict.Unknown; s <= verdict.Litter; s++ {
			if s.String() == value {
				return func(r *row, now time.Time) bool { return r.stateAt(now) == s }, nil
			}
		}
		return nil, fmt.Errorf("no state %q; live late stopped remote unknown expired dead unreadable free", value)
	case "kind":
		for k := watch.Lease; k <= watch.Temp; k++ {
			if k.String() == value {
				return func(r *row, _ time.Time) bool { return r.entry.Kind == k }, nil
			}
		}
		return nil, fmt.Errorf("no kind %q; lease lock token temp", value)
	case "is":
		switch value {
		case "problem":
			return func(r *row, _ time.Time) bool { return r.entry.IsProblem() }, nil
		case "waiting":
			return func(r *row, _ time.Time) bool { return isWaitedFor(r.entry) }, nil
		case "mine":
			return func(r *row, _ time.Time) bool { return r.mine }, nil
		}
		return nil, fmt.Errorf("is: wants problem, waiting or mine, not %q", value)
	case "host":
		return func(r *row, _ time.Time) bool {
			return r.holder != nil && strings.Contains(strings.ToLower(r.holder.Host), value)
		}, nil
	case "pid":
		pid, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("pid: wants a number, not %q", value)
		}
		return func(r *row, _ time.Time) bool {
			return uint64(r.entry.PID()) == pid || r.holder != nil && uint64(r.holder.PID) == pid
		}, nil
	default:
		return nil, fmt.Errorf("no field %q; %s beat>", field, filterKeys)
	}
}

func parseBeat(s string, holds func(age, limit time.Duration) bool) (func(*row, time.Time) bool, error) {
	limit, err := time.ParseDuration(s)
	if err != nil || limit < 0 {
		return nil, fmt.Errorf("beat> wants a time as 30s or 5m, not %q", s)
	}
	return func(r *row, now time.Time) bool {
		return !r.beat.IsZero() && holds(verdict.Age(r.beat, now), limit)
	}, nil
}

// keeps reports whether the row passes.
func (f *filter) keeps(r *row, now time.Time) bool {
	for _, t := range f.terms {
		if t.match(r, now) == t.not {
			return false
		}
	}
	return true
}

// wantsParts reports whether the filter asks for tokens or temps, which are otherwise shown with their lock.
func (f *filter) wantsParts() bool {
	for word := range strings.FieldsSeq(f.text) {
		if w := strings.ToLower(word); w == "kind:token" || w == "kind:temp" {
			return true
		}
	}
	return false
}
