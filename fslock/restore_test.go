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
	"holdfast/fslock/record"
)

func TestWhatWasBrokenIsPutBack(t *testing.T) {
	for what, data := range map[string][]byte{
		"dead": lockRecord(time.Minute, dead).Encode(), "remote": expired(time.Minute).Encode(),
		"torn": []byte("{\"pid\""), "empty": {}, "no record": []byte("# made by\n"),
	} {
		path := put(t, filepath.Join(t.TempDir(), "cache.lock"), data, time.Minute)
		l, _ := remover(nil)
		r := byHand(t, true)
		if err := l.Break(t.Context(), l.Inspect(path), r); err != nil {
			t.Fatal(what, err)
		}
		e, ok, err := r.Log.LastAct(path)
		if err != nil || !ok {
			t.Fatal(what, err)
		}
		if err := l.Restore(t.Context(), e, r); err != nil {
			t.Fatal(what, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, data) || inDir(t, filepath.Dir(path)) != "cache.lock" {
			t.Errorf("%s: put back %q (%v) in %s", what, now, err, inDir(t, filepath.Dir(path)))
		}
		entries := logged(t, r)
		if len(entries) != 3 || entries[1].Action != audit.ActionUndo || entries[2].Action != audit.ActionDone || entries[1].Nonce != entries[0].Nonce || entries[1].Path != entries[0].Path {
			t.Errorf("%s: logged %+v", what, entries)
		}
		if err := l.Restore(t.Context(), e, r); !errors.Is(err, ErrHeld) || len(logged(t, r)) != 3 {
			t.Errorf("%s, once more: %v", what, err)
		}
		// Nor is it put back a second time once the name is free again.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := l.Restore(t.Context(), e, r); !errors.Is(err, ErrChanged) || len(logged(t, r)) != 3 {
			t.Errorf("%s, once more after its end: %v", what, err)
		}
	}
}

func TestNothingIsPutBackOverSomebody(t *testing.T) {
	e := audit.Entry{Action: audit.ActionBreak, Kind: "lock", Before: lockRecord(time.Minute, dead).Encode()}
	alive := e
	alive.Before = lockRecord(time.Minute).Encode()
	lease, token, found := e, e, e
	lease.Kind, token.Action, found.Before = "lease", audit.ActionToken, nil
	for what, tc := range map[string]struct {
		e    audit.Entry
		at   string
		act  func(path string) error
		mod  func(*Locker, *Removal)
		want error
	}{
		"its holder lives":         {e: alive, want: ErrHeld},
		"a lease":                  {e: lease, want: fs.ErrInvalid},
		"no break":                 {e: token, want: fs.ErrInvalid},
		"what was not read":        {e: found, want: fs.ErrInvalid},
		"read-only":                {e: e, mod: func(l *Locker, _ *Removal) { l.ReadOnly = true }, want: ErrReadOnly},
		"force without reason":     {e: e, mod: func(_ *Locker, r *Removal) { r.Force, r.Reason = true, " " }, want: ErrNoReason},
		"the name is taken":        {e: e, at: "guarded", act: func(p string) error { return record.Create(p, lockRecord(0).Encode()) }, want: ErrHeld},
		"the name is taken later":  {e: e, at: "audited", act: func(p string) error { return record.Create(p, lockRecord(0).Encode()) }, want: ErrHeld},
		"a link in its place":      {e: e, at: "audited", act: func(p string) error { return os.Symlink("nowhere", p) }, want: ErrHeld},
		"the directory has gone":   {e: e, at: "audited", act: func(p string) error { return os.Remove(filepath.Dir(p)) }, want: fs.ErrNotExist},
		"the guard cannot be kept": {e: e, at: "guarded", act: func(string) error { return fs.ErrClosed }, want: fs.ErrClosed},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "cache.lock")
		tc.e.Path = path
		l, _ := remover(func(step, p string) error {
			if step == tc.at {
				return tc.act(p)
			}
			return nil
		})
		r := byHand(t, false)
		if tc.mod != nil {
			tc.mod(l, &r)
		}
		err := l.Restore(t.Context(), tc.e, r)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", what, err)
		}
		if c, ok := errors.AsType[*ConflictError](err); ok && strings.HasPrefix(what, "the name") && (c.Holder == nil || c.Holder.PID != 4242) {
			t.Errorf("%s: %+v", what, c)
		}
		if now, err := os.ReadFile(path); tc.want != nil && err == nil && bytes.Equal(now, tc.e.Before) {
			t.Errorf("%s: it was put back", what)
		}
	}
}
