package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// What `break --undo --json` prints, one line.
type jsonUndo struct {
	Schema   int        `json:"schema"`
	Action   string     `json:"action"` // undo
	Path     string     `json:"path"`
	PathB64  string     `json:"path_b64,omitempty"`
	ID       string     `json:"id,omitempty"`
	Broken   jsonLogged `json:"broken"` // the entry of the audit log that is undone
	AuditLog string     `json:"audit_log,omitempty"`
	Done     bool       `json:"done"`
	Refused  string     `json:"refused,omitempty"`
}

// putBack undoes the last break of a lease or lock that the audit log tells of.
func (b *breaking) putBack(ctx context.Context, arg string) error {
	t, err := b.target(ctx, arg)
	if err != nil {
		return err
	}
	if t.kind != watch.Lease && t.kind != watch.Lock {
		return usage("--undo puts back leases and locks; %s is a %s, which stays removed", t.path, t.kind)
	}
	broken, ok, err := lastBroken(b.log, t.path)
	if err != nil {
		return failed(fmt.Errorf("the audit log cannot be read: %w", err))
	}
	if !ok {
		file, _ := b.log.File() // it was read
		return &problem{
			code: codeFailed, err: fmt.Errorf("there is nothing to put back: the audit log tells of no break of %s", &t),
			hint: "The log is " + file + "; `holdfast log` prints it.",
		}
	}
	if !b.json {
		if err := b.print(func(w io.Writer) { b.tellUndo(w, &t, &broken, time.Now()) }); err != nil {
			return err
		}
	}
	says, done := "nothing was written (--dry-run)", false
	if !b.dryRun {
		if b.readOnly {
			return refused("break --undo", t.String())
		}
		if err := b.restore(ctx, &t, broken); err != nil {
			p := b.inTime(ctx, b.undoRefusal(err))
			if b.json {
				j := b.encodeUndo(&t, &broken)
				j.Refused = p.Error()
				_ = b.print(func(w io.Writer) { writeJSON(w, j) }) // the exit code tells it to whoever does not read
			}
			return p
		}
		says, done = "put back "+t.String(), true
	}
	return b.print(func(w io.Writer) {
		if b.json {
			j := b.encodeUndo(&t, &broken)
			j.Done = done
			writeJSON(w, j)
			return
		}
		fmt.Fprintln(w, b.style().Safe(says))
	})
}

func (b *breaking) restore(ctx context.Context, t *target, broken audit.Entry) error {
	reason := b.reason
	if t.kind == watch.Lease {
		return b.sight().store(filepath.Dir(t.path)).Restore(ctx, broken, lease.Removal{Reason: reason, Log: b.log})
	}
	return b.sight().locker.Restore(ctx, broken, fslock.Removal{Reason: reason, Log: b.log})
}

// lastBroken is the newest break of path that was not undone since. Each undo belongs to the last break before it.
func lastBroken(log *audit.Log, path string) (last audit.Entry, ok bool, err error) {
	var broken []audit.Entry
	_, _, err = log.Last(path, func(e *audit.Entry) bool {
		switch e.Action {
		case audit.ActionBreak:
			broken = append(broken, *e)
		case audit.ActionUndo:
			broken = broken[:max(0, len(broken)-1)]
		}
		return false
	})
	if err != nil || len(broken) == 0 {
		return audit.Entry{}, false, err
	}
	return broken[len(broken)-1], true, nil
}

// undoRefusal says why nothing was put back: what is there now stays.
func (b *breaking) undoRefusal(err error) *problem {
	p := b.breakRefusal(err)
	state, refused := verdict.Free, false
	if e, ok := errors.AsType[*lease.ConflictError](err); ok {
		state, refused = e.Verdict.State, true
	} else if e, ok := errors.AsType[*fslock.ConflictError](err); ok {
		state, refused = e.Verdict.State, p.code != codeBlocked
	} else {
		refused = errors.Is(err, fs.ErrInvalid)
	}
	if !refused {
		return p
	}
	p.code, p.hint = codeLost, "Nothing was written."
	switch state {
	case verdict.Live, verdict.Late, verdict.Stopped, verdict.Remote, verdict.Unknown:
		p.code, p.hint = codeHeld, "Nothing was written: whoever has it keeps it."
	default:
	}
	return p
}

func (b *breaking) encodeUndo(t *target, broken *audit.Entry) jsonUndo {
	j := jsonUndo{Schema: schema, Action: audit.ActionUndo, Path: t.path, PathB64: inexact(t.path), ID: t.id, Broken: encodeLogged(broken)}
	j.AuditLog, _ = b.log.File() // it was read
	return j
}

func (b *breaking) tellUndo(w io.Writer, t *target, broken *audit.Entry, now time.Time) {
	st := b.style()
	fmt.Fprintf(w, "plan: put back %s\n", st.Safe(t.String()))
	b.line(w, "broken", "%s, by %s", ago(broken.Time, now), short(st, who(broken.Who)))
	if broken.Reason != "" {
		b.line(w, "because", "%s", short(st, broken.Reason))
	}
	if h := holderIn(t, broken.Before); h != nil {
		b.line(w, "holder", "%s", shortener(st, h).Replace(b.holder(h, now)))
		b.line(w, "nonce", "%s", orWord(h.ClaimID+h.WriterEpoch, "none: an older build wrote it"))
	}
	if t.kind == watch.Lease {
		b.line(w, "compared", "that nobody has it, and its epoch counter: one that went on belongs to another owner")
	} else {
		b.line(w, "compared", "that nobody has it, and that the holder which it names is not alive")
	}
	b.line(w, "written", "%s, as it was: %d bytes", t.path, len(broken.Before))
	if file, err := b.log.File(); err == nil {
		b.line(w, "first", "a line in %s", file)
	}
}

// holderIn is whom a record names that is not on disk any more; nil: it names nobody.
func holderIn(t *target, data []byte) *verdict.Holder {
	if t.kind == watch.Lease {
		if r, err := record.DecodeLease(t.path, data); err == nil {
			return (&verdict.LeaseFacts{Record: &r}).Holder()
		}
		return nil
	}
	if r, err := record.DecodeLock(t.path, data); err == nil {
		return (&verdict.LockFacts{Record: &r}).Holder()
	}
	return nil
}
