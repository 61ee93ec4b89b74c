package tui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// narrowings are filters, and what each lets through in words of its own.
func narrowings() map[string]func(e *watch.Entry, mine bool, now time.Time) bool {
	kind := func(k watch.Kind) func(*watch.Entry, bool, time.Time) bool {
		return func(e *watch.Entry, _ bool, _ time.Time) bool { return e.Kind == k }
	}
	state := func(s verdict.State, want bool) func(*watch.Entry, bool, time.Time) bool {
		return func(e *watch.Entry, _ bool, now time.Time) bool { return (e.Judge(now).State == s) == want }
	}
	older := func(e *watch.Entry, by time.Duration, now time.Time) bool {
		return !e.Beat().IsZero() && now.Sub(e.Beat()) > by
	}
	return map[string]func(*watch.Entry, bool, time.Time) bool{
		"":            func(*watch.Entry, bool, time.Time) bool { return true },
		"state:live":  state(verdict.Live, true),
		"STATE:late":  state(verdict.Late, true),
		"!state:live": state(verdict.Live, false),
		"beat>20s":    func(e *watch.Entry, _ bool, now time.Time) bool { return older(e, 20*time.Second, now) },
		"!beat>20s":   func(e *watch.Entry, _ bool, now time.Time) bool { return !older(e, 20*time.Second, now) },
		"is:mine":     func(_ *watch.Entry, mine bool, _ time.Time) bool { return mine },
		"kind:token":  kind(watch.Token),
		"kind:lock":   kind(watch.Lock),
		"app-1":       func(e *watch.Entry, _ bool, _ time.Time) bool { return strings.Contains(e.Name+e.Path, "app-1") },
	}
}

// some makes some of the entries that a snapshot can have, judged at the moment.
func (w *world) some(i int, version int) []*watch.Entry {
	w.entries = nil
	age := time.Duration(version*7) * time.Second
	name := fmt.Sprintf("app-%d", (i+version/3)%20)
	found := alive(48377)
	switch {
	case i%7 == 1:
		found = elsewhere()
	case version%5 == 4:
		found = dead(proc.Gone)
	}
	switch i % 5 {
	case 0:
		w.lease(fmt.Sprintf("lease-%d", i), age, found, func(f *verdict.LeaseFacts) {
			f.Record.Version, f.Record.Epoch = strings.Repeat("5", version%9), uint64(version)
		})
	default:
		w.lock(fmt.Sprintf("index/%d/cache.lock", i), name, age, found, func(f *verdict.LockFacts) {
			if i%3 == 0 {
				f.Proc.Condition = proc.Stopped
			}
			if i%4 != 0 {
				return
			}
			whose := found
			if version%2 == 0 {
				whose = elsewhere() // it blocks what was stuck already, or was not
			}
			f.Token = &verdict.TokenFacts{
				Seen: verdict.Seen{Path: fmt.Sprintf("%s/index/%d/.cache.lock.reclaim", storage, i), Look: w.at, Proc: whose, Beat: f.Beat},
			}
		})
	}
	return w.entries
}

// TestRowsThatStayAreTheRowsThatWouldBeMade gives a screen snapshot after snapshot, most of whose entries are those of the
// one before, and compares it with a screen that is given only the last one.
func TestRowsThatStayAreTheRowsThatWouldBeMade(t *testing.T) {
	filters := narrowings()
	names := slices.Sorted(maps.Keys(filters))
	rapid.Check(t, func(rt *rapid.T) {
		const most = 24
		d := sit(t, screenFor(), 140, 40)
		w := &world{at: noon}
		there := map[ref]*watch.Entry{}
		put := func(entries []*watch.Entry) {
			for _, e := range entries {
				there[refOf(e)] = e
			}
		}
		for i := range most {
			if i%6 != 5 {
				put(w.some(i, i%3))
			}
		}
		version := uint64(0)
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			w.at = w.at.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * time.Millisecond)
			changes := rapid.SampledFrom([]int{0, 1, 1, 1, 2, 5, 60}).Draw(rt, "changes")
			for range changes {
				i := rapid.IntRange(0, most-1).Draw(rt, "entry")
				entries := w.some(i, rapid.IntRange(0, 9).Draw(rt, "version"))
				switch rapid.IntRange(0, 6).Draw(rt, "how") {
				case 0:
					for _, e := range entries {
						delete(there, refOf(e))
					}
				case 1: // one of a lock and its token goes
					delete(there, refOf(entries[len(entries)-1]))
				case 2: // and the other
					delete(there, refOf(entries[0]))
				default:
					put(entries)
				}
			}
			s := w.snapshot()
			s.Entries = slices.SortedFunc(maps.Values(there), func(a, b *watch.Entry) int {
				return cmp.Or(-cmp.Compare(a.Root, b.Root), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
			})
			if rapid.IntRange(0, 9).Draw(rt, "disorder") == 0 {
				s.Entries = rapid.Permutation(s.Entries).Draw(rt, "order")
			}

			switch rapid.IntRange(0, 9).Draw(rt, "beside") {
			case 0:
				var err error
				if d.filter, err = parseFilter(rapid.SampledFrom(names).Draw(rt, "filter")); err != nil {
					rt.Fatal(err)
				}
				d.refill()
			case 1:
				d.sort = Column(rapid.IntRange(0, int(columns)-1).Draw(rt, "sort"))
				d.refill()
			case 2:
				d.reversed = !d.reversed
				d.refill()
			case 3:
				d.showRows(kindOfRows(rapid.IntRange(0, int(views)-1).Draw(rt, "view")))
			case 4, 5:
				d.press(rapid.SampledFrom([]string{"j", "k", " ", "G", "g"}).Draw(rt, "key"))
			case 6:
				d.pause()
			default:
			}
			held := slices.Clone(d.held)
			if rapid.IntRange(0, 5).Draw(rt, "hold") == 0 {
				version++
				held = nil
				for _, e := range s.Entries {
					if rapid.IntRange(0, 7).Draw(rt, "held") == 0 {
						held = append(held, holdOf(e))
					}
				}
			}

			d.tellAt(delivery{held: holdings{version, held}}, w.at)
			first, selected, cursor, marked := d.snap == nil, d.selected, d.cursor, maps.Clone(d.marked)
			d.tellAt(delivery{snapshot: s, held: holdings{version, held}}, w.at)
			if d.paused {
				continue
			}
			sameAsNew(t, rt, d, filters[d.filter.text])
			if at := slices.IndexFunc(d.rows, func(r *row) bool { return r.ref() == selected }); at >= 0 {
				cursor = at
			}
			if cursor = max(0, min(cursor, len(d.rows)-1)); !first && d.cursor != cursor {
				rt.Fatalf("the cursor is on %d, not %d", d.cursor, cursor)
			}
			if r := d.current(); r != nil && r.ref() != d.selected || r == nil && d.selected != (ref{}) {
				rt.Fatalf("%v is selected", d.selected)
			}
			maps.DeleteFunc(marked, func(what ref, _ bool) bool { return there[what] == nil })
			if !maps.Equal(d.marked, marked) {
				rt.Fatalf("marked is %v, not %v", d.marked, marked)
			}
		}
	})
}

func holdOf(e *watch.Entry) held { return held{ref: refOf(e), name: e.Title(), nonce: "nonce"} }

// sameAsNew fails unless d is like a screen that never saw another snapshot, and lists what lets says.
func sameAsNew(tb testing.TB, rt *rapid.T, d *desk, lets func(*watch.Entry, bool, time.Time) bool) {
	tb.Helper()
	n := sit(tb, screenFor(), 140, 40)
	n.filter, n.sort, n.reversed, n.shows = d.filter, d.sort, d.reversed, d.shows
	n.refill()
	n.tellAt(delivery{snapshot: d.snap, held: holdings{d.heldAt, d.held}}, d.now)

	type state struct {
		Total, Unshown, Tokens     int
		LongestName, LongestHolder int
		Change                     time.Time
	}
	stateOf := func(m *model) state {
		return state{m.total, m.unshown, m.tokens, m.longestName, m.longestHolder, m.change}
	}
	if got, want := stateOf(d.model), stateOf(n.model); got != want {
		rt.Fatalf("it is %+v\nanew %+v", got, want)
	}
	if !slices.Equal(d.stuck, n.stuck) {
		rt.Fatalf("%d are stuck, anew %d", len(d.stuck), len(n.stuck))
	}
	if len(d.all) != len(d.snap.Entries) || len(d.index) != len(d.all) {
		rt.Fatalf("%d entries, %d rows, %d in the index", len(d.snap.Entries), len(d.all), len(d.index))
	}
	for i, r := range d.all {
		a, b := *r, *n.all[i]
		same := a.who() == b.who() && (a.holder == nil) == (b.holder == nil)
		a.judged, b.judged, a.hay, b.hay, a.holder, b.holder = time.Time{}, time.Time{}, "", "", nil, nil
		if a != b || !same {
			rt.Fatalf("a row is %+v\nanew %+v", a, b)
		}
		if d.index[r.ref()] != r || d.find(r.ref()) != r.entry {
			rt.Fatalf("%v is not found", r.ref())
		}
	}
	longest := 0
	for _, r := range d.all {
		longest = max(longest, text.Width(holderWords(r.holder)))
	}
	if longest != d.longestHolder {
		rt.Fatalf("the longest holder has %d cells, not %d", longest, d.longestHolder)
	}
	path := func(r *row) string { return r.entry.Kind.String() + " " + r.entry.Path }
	if got, want := mapped(d.rows, path), mapped(n.rows, path); !slices.Equal(got, want) {
		rt.Fatalf("the list is\n%s\nanew\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	locks := map[string]bool{}
	for _, e := range d.snap.Entries {
		if e.Kind == watch.Lock {
			locks[e.Path] = true
		}
	}
	listed := map[*watch.Entry]bool{}
	for _, r := range d.rows {
		listed[r.entry] = true
	}
	for _, e := range d.snap.Entries {
		part := isLitter(e) && locks[e.LockOf] && d.filter.text != "kind:token" && d.shows != litterRows
		mine := slices.ContainsFunc(d.held, func(h held) bool { return h.ref == refOf(e) })
		view := d.shows == allRows || d.shows == problemRows && e.IsProblem() || d.shows == litterRows && isLitter(e) ||
			d.shows == mineRows && mine || d.shows == waitingRows && isWaitedFor(e)
		if want := !part && view && lets(e, mine, d.now); want != listed[e] {
			rt.Fatalf("%v at %v: listed %v, want %v", refOf(e), d.now, listed[e], want)
		}
	}
}

func mapped[A, B any](list []A, f func(A) B) []B {
	mapped := make([]B, len(list))
	for i, a := range list {
		mapped[i] = f(a)
	}
	return mapped
}
