package fslock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// plain takes from the facts what differs between two looks at the same file.
func plain(s *verdict.Seen, at time.Time) {
	s.Look, s.Still = at, time.Time{}
	if s.Booted {
		s.Beat = at
	}
}

func plainLock(info Info, at time.Time) Info {
	if f := info.Facts; f != nil {
		plain(&f.Seen, at)
		if f.Token != nil {
			plain(&f.Token.Seen, at)
			token := f.Token.Token(at)
			info.Token = &token
		}
		info.Verdict = f.Judge(at)
	}
	return info
}

func plainToken(info TokenInfo, at time.Time) TokenInfo {
	plain(&info.Facts.Seen, at)
	info.Verdict, info.Token = info.Facts.Judge(at), info.Facts.Token(at)
	return info
}

func plainTemp(info TempInfo, at time.Time) TempInfo {
	plain(&info.Facts.Seen, at)
	info.Verdict = info.Facts.Judge(at)
	return info
}

func same(r *rapid.T, path string, one, all any) {
	if !reflect.DeepEqual(one, all) {
		r.Fatalf("%s:\nalone      %+v\namong many %+v", path, one, all)
	}
}

func TestLookingAtManyIsLookingAtEach(t *testing.T) {
	kind := rapid.SampledFrom([]string{
		"live", "dead", "remote", "recycled", "old", "zombie", "nested", "reboot", "empty", "torn", "other", "missing", "link", "dir", "huge",
	})
	rapid.Check(t, func(r *rapid.T) {
		dir := t.TempDir()
		table := machine(func(m *proctest.Machine) {
			m.Procs = append(m.Procs,
				proctest.Proc{PID: 6, Zombie: true, Parent: 4242, Start: 777},
				proctest.Proc{PID: 7000, NSpid: []int{7000, 7}, PIDNS: 9, Start: 777, Condition: proc.Stopped})
		})
		age := func() time.Duration { return time.Duration(rapid.IntRange(-10, 100).Draw(r, "age")) * time.Second }
		fill := func(path string) {
			mod := func(*record.Lock) {}
			switch kind.Draw(r, filepath.Base(path)) {
			case "missing":
				return
			case "link":
				if err := os.Symlink("x", path); err != nil {
					r.Skip(err)
				}
				return
			case "dir":
				put(t, filepath.Join(path, "x"), nil, 0)
				return
			case "huge":
				put(t, path, make([]byte, record.MaxSize+1), age())
				return
			case "empty":
				put(t, path, nil, age())
				return
			case "torn":
				put(t, path, []byte(`{"pid":`), age())
				return
			case "other":
				put(t, path, []byte(`none`), age())
				return
			case "dead":
				mod = dead
			case "remote":
				mod = remote
			case "recycled":
				mod = func(r *record.Lock) { r.ProcessStartTime = new(uint64(1)) }
			case "old":
				mod = func(r *record.Lock) { r.ProcessStartTime, r.BootID, r.WriterEpoch = nil, nil, "" }
			case "zombie":
				mod = func(r *record.Lock) { r.PID = 6 }
			case "nested":
				mod = func(r *record.Lock) { r.PID = 7 }
			case "reboot":
				mod = func(r *record.Lock) { r.BootID = new("before") }
			}
			put(t, path, lockRecord(age(), mod).Encode(), age())
		}
		var locks, tokens, temps []string
		for i := range rapid.IntRange(0, 6).Draw(r, "locks") {
			name := fmt.Sprintf("%d.lock", i)
			sub := filepath.Join(dir, fmt.Sprint(i%2))
			put(t, filepath.Join(sub, "here"), nil, 0)
			lock, token := filepath.Join(sub, name), filepath.Join(sub, "."+name+".reclaim")
			temp := filepath.Join(sub, "."+name+".tmp.4242.1.0")
			for _, path := range []string{lock, token, temp} {
				fill(path)
			}
			locks, tokens, temps = append(locks, lock), append(tokens, token), append(temps, temp)
		}
		all := (&Locker{Table: table}).InspectAll(t.Context(), locks, tokens, temps)
		if len(all.Locks) != len(locks) || len(all.Tokens) != len(tokens) || len(all.Temps) != len(temps) {
			r.Fatalf("%d locks, %d tokens, %d temps of %d", len(all.Locks), len(all.Tokens), len(all.Temps), len(locks))
		}
		one := &Locker{Table: table}
		now := time.Now()
		for i := range locks {
			same(r, locks[i], plainLock(one.Inspect(locks[i]), now), plainLock(all.Locks[i], now))
			same(r, tokens[i], plainToken(one.InspectToken(tokens[i]), now), plainToken(all.Tokens[i], now))
			same(r, temps[i], plainTemp(one.InspectTemp(temps[i]), now), plainTemp(all.Temps[i], now))
		}
	})
}

// Whoever has just listed the directories knows the tokens; but of a lock that went since then one may be left.
func TestTokenThatWasNotListedIsLookedForOnlyWhereTheLockIsGone(t *testing.T) {
	dir := t.TempDir()
	var locks, tokens []string
	for _, name := range []string{"held", "gone", "torn", "told"} {
		lock := filepath.Join(dir, name+".lock")
		token := filepath.Join(dir, "."+name+".lock.reclaim")
		put(t, token, lockRecord(0).Encode(), 0)
		switch name {
		case "gone":
		case "torn":
			put(t, lock, []byte(`{"pid":1,`), 0)
		default:
			put(t, lock, lockRecord(0).Encode(), 0)
		}
		locks = append(locks, lock)
		if name == "told" {
			tokens = append(tokens, token)
		}
	}
	for _, listed := range []bool{true, false} {
		found := make([]bool, len(locks))
		(&Locker{}).InspectEach(t.Context(), locks, tokens, nil, Each{
			Lock:   func(i int, info Info) { found[i] = info.Token != nil && info.Facts.Token != nil },
			Token:  func(int, TokenInfo) {},
			Listed: listed,
		})
		if want := []bool{!listed, true, true, true}; !slices.Equal(found, want) {
			t.Errorf("listed %v: tokens of held, gone, torn and told: %v", listed, found)
		}
	}
}

func TestLookingAtManyEndsWithItsContext(t *testing.T) {
	paths := make([]string, 1000)
	for i := range paths {
		paths[i] = filepath.Join(t.TempDir(), "x.lock")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if infos := (&Locker{}).InspectAll(ctx, paths, paths, paths); len(infos.Locks)+len(infos.Tokens)+len(infos.Temps) != 0 {
		t.Errorf("%d locks were looked at", len(infos.Locks))
	}

	// In the midst of it: what is there was looked at, in order, and the rest is left out.
	ctx = &endingContext{Context: t.Context(), left: 1500}
	infos := (&Locker{}).InspectAll(ctx, paths, paths, paths)
	if len(infos.Locks) != len(paths) || len(infos.Tokens) == 0 || len(infos.Tokens) == len(paths) || len(infos.Temps) != 0 {
		t.Errorf("%d locks, %d tokens, %d temps were looked at", len(infos.Locks), len(infos.Tokens), len(infos.Temps))
	}
	for i, info := range infos.Tokens {
		if info.Facts == nil || info.Path != paths[i] {
			t.Fatalf("token %d was not looked at: %+v", i, info)
		}
	}
}

// endingContext is done after it was asked a number of times.
type endingContext struct {
	context.Context //nolint:containedctx // it is one

	mu   sync.Mutex
	left int
}

func (c *endingContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestOneLockerMayLookAtTheSameTime(t *testing.T) {
	path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Second))
	l := &Locker{Table: machine()}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if s := l.Inspect(path).Verdict.State; s != verdict.Live {
					t.Errorf("state = %v", s)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkInspectAll looks at 10,000 locks of this process in 2,000 directories, and for comparison opens, reads
// and closes them.
func BenchmarkInspectAll(b *testing.B) {
	root := b.TempDir()
	self := proc.Local().Self()
	var paths []string
	for i := range 10_000 {
		dir := filepath.Join(root, fmt.Sprintf("%016x", i/5))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.lock", i%5))
		r := lockRecord(time.Minute, func(r *record.Lock) {
			r.PID, r.Hostname, r.BootID, r.ProcessStartTime = uint32(self.PID), self.Host, &self.BootID, &self.StartTicks
		})
		if err := os.WriteFile(path, r.Encode(), 0o600); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, path)
	}
	b.Run("ours", func(b *testing.B) {
		l := &Locker{}
		for b.Loop() {
			l.InspectAll(b.Context(), paths, nil, nil)
		}
	})
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					for i := w; i < len(paths); i += 4 {
						if _, err := os.ReadFile(paths[i]); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		}
	})
}
