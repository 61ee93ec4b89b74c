package fslock

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestTokenIsRemovedWhenAnAttemptWouldClearIt(t *testing.T) {
	reclaim := func(r *record.Lock) { r.WriterEpoch = "reclaim-7-7" }
	for what, tc := range map[string]struct {
		data   []byte
		age    time.Duration
		clears bool
	}{
		"dead":          {lockRecord(0, reclaim, dead).Encode(), 0, true},
		"alive":         {lockRecord(0, reclaim).Encode(), time.Hour, false},
		"unknown":       {lockRecord(0, reclaim, remote).Encode(), time.Hour, false},
		"malformed":     {[]byte("{"), 30 * time.Second, false},
		"old malformed": {[]byte("{"), 61 * time.Second, true},
	} {
		for _, force := range []bool{false, true} {
			dir := t.TempDir()
			token := put(t, filepath.Join(dir, ".cache.lock.reclaim"), tc.data, tc.age)
			l, _ := remover(nil)
			r := byHand(t, force)
			err := l.RemoveToken(t.Context(), l.InspectToken(token), r)
			if !tc.clears && !force {
				e, ok := errors.AsType[*ConflictError](err)
				if !ok || !errors.Is(err, ErrNotYet) || e.Token == nil || e.Token.Path != token {
					t.Errorf("%s: %v", what, err)
				}
				untouched(t, what, token, tc.data, r)
				continue
			}
			if err != nil || inDir(t, dir) != "" {
				t.Errorf("%s, force %v: %v, left %s", what, force, err, inDir(t, dir))
			}
			entries := logged(t, r)
			if len(entries) != 1 || entries[0].Action != audit.ActionToken || entries[0].Kind != "token" || !bytes.Equal(entries[0].Before, tc.data) {
				t.Errorf("%s: logged %+v", what, entries)
			}
		}
	}
}

func TestTempIsRemovedWhenItIsLitter(t *testing.T) {
	lease := func(pid string) []byte {
		return []byte(`{"instance_id":"a","owner_boot_id":"b","block_id":"c","pid":` + pid +
			`,"acquired_at_ms":1,"renewed_at_ms":1,"hostname":"here","pid_start_s":1}`)
	}
	for what, tc := range map[string]struct {
		name string
		data []byte
		want error // without force
		hard error // by force
	}{
		"dead":                      {".cache.lock.tmp.999999.1.0", lockRecord(0, dead).Encode(), nil, nil},
		"alive":                     {".cache.lock.tmp.4242.1.0", lockRecord(time.Hour).Encode(), ErrHeld, ErrHeld},
		"unknown":                   {".cache.lock.tmp.4242.1.0", lockRecord(time.Hour, remote).Encode(), ErrNotYet, nil},
		"unreadable, alive by name": {".cache.lock.tmp.4242.1.0", []byte("{"), ErrHeld, ErrHeld},
		"unreadable, dead by name":  {".cache.lock.tmp.999999.1.0", nil, nil, nil},
		"unreadable":                {".registry-tmp-abcdef.json", []byte("{"), nil, nil},
		"a dead claimant's":         {".registry-tmp-abcdef.json", lease("999999"), nil, nil},
	} {
		for _, local := range []bool{true, false} {
			for force, want := range map[bool]error{false: tc.want, true: tc.hard} {
				path := put(t, filepath.Join(t.TempDir(), tc.name), tc.data, time.Hour)
				l, _ := remover(nil)
				l.local = func(string) (string, bool) { return "", local }
				if !local && strings.Contains(what, "by name") {
					continue // a name tells no host
				}
				r := byHand(t, force)
				r.Action = "tidy"
				err := l.RemoveTemp(t.Context(), l.InspectTemp(path), r)
				if !errors.Is(err, want) {
					t.Errorf("%s, force %v: %v", what, force, err)
				}
				_, serr := os.Lstat(path)
				entries := logged(t, r)
				if gone := errors.Is(serr, fs.ErrNotExist); gone != (want == nil) || len(entries) != map[bool]int{true: 1}[gone] {
					t.Errorf("%s, force %v: %v, logged %+v", what, force, serr, entries)
				}
				for _, e := range entries {
					if e.Action != "tidy" || e.Kind != "temp" || !bytes.Equal(e.Before, tc.data) {
						t.Errorf("%s: logged %+v", what, e)
					}
				}
				if rest := inDir(t, filepath.Dir(path)); local && strings.Contains(rest, ".guard") || strings.Contains(rest, "tmp-abcdef.json.guard") {
					t.Errorf("%s: left %s", what, rest)
				}
			}
		}
	}
}

func TestTempThatIsOpenIsNoLitter(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), ".registry-tmp-abcdef.json"), nil, 48*time.Hour)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	dev, ino, ok := record.Inode(st)
	if !ok {
		skip(t, "no inode numbers")
	}
	for what, table := range map[string]func(*proctest.Machine){
		"open": func(m *proctest.Machine) {
			m.Procs = append(m.Procs, proctest.Proc{PID: 7, Writes: []proctest.File{{Dev: dev, Ino: ino}}})
		},
		"perhaps open": func(m *proctest.Machine) { m.DeniesFDs = true },
	} {
		l := &Locker{Table: machine(table)}
		r := byHand(t, false)
		if err := l.RemoveTemp(t.Context(), l.InspectTemp(path), r); !errors.Is(err, ErrNotYet) {
			t.Errorf("%s: %v", what, err)
		}
		untouched(t, what, path, nil, r)
	}
}

func TestTokensAndTempsAreBoundToWhatWasShown(t *testing.T) {
	mine := lockRecord(0, dead)
	other := lockRecord(0, dead, func(r *record.Lock) { r.WriterEpoch = "other" })
	for name, call := range map[string]func(l *Locker, path string, show bool) func(Removal) error{
		".cache.lock.reclaim": func(l *Locker, path string, show bool) func(Removal) error {
			info := l.InspectToken(path)
			if !show {
				info.Facts = nil
			}
			return func(r Removal) error { return l.RemoveToken(t.Context(), info, r) }
		},
		".cache.lock.tmp.999999.1.0": func(l *Locker, path string, show bool) func(Removal) error {
			info := l.InspectTemp(path)
			if !show {
				info.Facts = nil
			}
			return func(r Removal) error { return l.RemoveTemp(t.Context(), info, r) }
		},
	} {
		for step, act := range map[string]func(path string) error{
			"": func(path string) error { return replaceBy(path, other.Encode()) }, "guarded": os.Remove,
			"auditing": func(path string) error { return rewrite(path, other.Encode()) },
			"audited":  func(path string) error { return replaceBy(path, mine.Encode()) }, // a copy is not what was looked at
		} {
			path := putLock(t, t.TempDir(), name, mine)
			l, _ := remover(nil)
			remove := call(l, path, true)
			if step == "" {
				if err := act(path); err != nil {
					t.Fatal(err)
				}
			}
			l.fault = func(s, p string) error {
				if s == step {
					return act(p)
				}
				return nil
			}
			if err := remove(byHand(t, true)); !errors.Is(err, ErrChanged) {
				t.Errorf("%s, changed at %q: %v", name, step, err)
			}
		}
		boom := errors.New("boom")
		for _, step := range []string{"guarded", "auditing", "audited", "removed"} {
			path := putLock(t, t.TempDir(), name, mine)
			l, _ := remover(func(s, _ string) error {
				if s == step {
					return boom
				}
				return nil
			})
			if err := call(l, path, true)(byHand(t, false)); !errors.Is(err, boom) {
				t.Errorf("%s, %s: %v", name, step, err)
			}
			enter(t, l, path).leave()
		}
		path := putLock(t, t.TempDir(), name, mine)
		l, _ := remover(nil)
		l.fault = nil
		if err := call(l, path, false)(byHand(t, false)); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s that nobody looked at: %v", name, err)
		}
		l.ReadOnly = true
		if err := call(l, path, true)(byHand(t, false)); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
		if err := (&Locker{}).RemoveToken(t.Context(), TokenInfo{Path: path, Facts: &verdict.TokenFacts{}}, Removal{Force: true}); !errors.Is(err, ErrNoReason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOtherPeoplesFilesAreNotRemoved(t *testing.T) {
	dir := t.TempDir()
	l, _ := remover(nil)
	for _, name := range []string{"notes.txt", ".reclaim", "cache.lock", ".cache.lock.tmp", ".cache.lock.tmp.1.2", "x.reclaim"} {
		path := putLock(t, dir, name, lockRecord(time.Hour, dead))
		r := byHand(t, true)
		if err := l.RemoveToken(t.Context(), l.InspectToken(path), r); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("token %s: %v", name, err)
		}
		if err := l.RemoveTemp(t.Context(), l.InspectTemp(path), r); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("temp %s: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil || len(logged(t, r)) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
