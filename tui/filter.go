package tui

import (
	"cmp"
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
// host:web02, pid:9120, is:waiting, beat>30s, beat<30s; a ! before any of them turns it round. The error says what is
// wrong with the first word that cannot be read, or not yet; the filter is made of the others.
func parseFilter(s string) (f filter, err error) {
	text := strings.TrimSpace(s)
	var read []string
	for typed := range strings.FieldsSeq(s) {
		t := part{}
		word, wrong := typed, errors.New("! needs a word")
		if word, t.not = strings.CutPrefix(word, "!"); word != "" {
			t.match, wrong = parseTerm(word)
		}
		if wrong != nil {
			err = cmp.Or(err, wrong)
			continue
		}
		f.terms = append(f.terms, t)
		f.timed = f.timed || isTimed(strings.ToLower(word))
		read = append(read, typed)
	}
	if f.text = text; err != nil {
		f.text = strings.Join(read, " ")
	}
	return f, err
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
		return nil, fmt.Errorf("%s: wants a value%s", field, valuesOf(strings.ToLower(field)))
	}
	switch strings.ToLower(field) {
	case "state":
		for s := verdict.Unknown; s <= verdict.Litter; s++ {
			if s.String() == value {
				return func(r *row, now time.Time) bool { return r.stateAt(now) == s }, nil
			}
		}
		return nil, fmt.Errorf("no state %q%s", value, valuesOf("state"))
	case "kind":
		for k := watch.Lease; k <= watch.Temp; k++ {
			if k.String() == value {
				return func(r *row, _ time.Time) bool { return r.entry.Kind == k }, nil
			}
		}
		return nil, fmt.Errorf("no kind %q%s", value, valuesOf("kind"))
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

// valuesOf are the words that may stand behind a field, for a message to end with; "": any, or a field that is none.
func valuesOf(field string) string {
	switch field {
	case "state":
		return ": live late stopped remote unknown expired dead unreadable free"
	case "kind":
		return ": lease lock token temp"
	case "is":
		return ": problem waiting mine"
	default:
		return ""
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
