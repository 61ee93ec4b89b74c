package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
)

// childEnv makes the test binary a claimant of its own: a process that does what it is told on standard input, one
// JSON order a line, and ends with it.
const childEnv = "HOLDFAST_LEASE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	obey(os.Stdin, os.Stdout)
}

// order is one call that a child is to make. The claimant and the fault count for a claim only.
type order struct {
	Do       string // claim, renew, verify, release, inspect, look-up, break, restore, self, umask, go
	Dir, ID  string
	Claimant Claimant
	ClaimID  string        // renew, verify, release: through a rebuilt handle
	Timeout  time.Duration // 0: none
	At       time.Time     // when to begin; zero: at once
	Step     string        // where to "kill" itself, or to "wait" until it is told to go on
	Fault    string
	Umask    int
	Log      string // break, restore: the audit log
	Force    bool   // break
}

// answer is what came of an order.
type answer struct {
	At        string // a step at which the child waits; nothing else is set
	Err       string
	Is        []string // the sentinels that the error matches
	Op        string   // of a typed error
	Sentence  string   // of a verdict, likewise the next five
	State     string
	Cause     string
	When      string
	Flags     []string
	Left      time.Duration // until claimable
	Epoch     uint64
	ClaimID   string
	HolderPID uint32
	Self      proc.Self
	Took      time.Duration
}

func obey(in io.Reader, out io.Writer) {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	handles := map[string]*Lease{}
	for {
		var o order
		if dec.Decode(&o) != nil {
			return
		}
		time.Sleep(time.Until(o.At))
		began := time.Now()
		a := carryOut(o, handles, dec, enc)
		a.Took = time.Since(began)
		if enc.Encode(a) != nil {
			return
		}
	}
}

func carryOut(o order, handles map[string]*Lease, dec *json.Decoder, enc *json.Encoder) answer {
	s := &Store{Dir: o.Dir}
	if o.Step != "" {
		s.fault = func(step string) error {
			if step != o.Step {
				return nil
			}
			if o.Fault == "kill" {
				self, err := os.FindProcess(os.Getpid())
				if err == nil {
					err = self.Kill()
				}
				time.Sleep(time.Minute) // the signal may take a moment
				return err
			}
			var on order
			return errors.Join(enc.Encode(answer{At: step}), dec.Decode(&on))
		}
	}
	ctx := context.Background()
	if o.Timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	held := handles[o.Dir+o.ID]
	if o.ClaimID != "" {
		var err error
		if held, err = s.Handle(o.ID, o.ClaimID); err != nil {
			return told(err)
		}
	}
	if held != nil {
		held.store = s // with the fault of this order
	}
	switch o.Do {
	case "self":
		return answer{Self: proc.Local().Self()}
	case "umask":
		return told(setUmask(o.Umask))
	case "claim":
		l, err := s.Claim(ctx, o.ID, o.Claimant)
		if err != nil {
			return told(err)
		}
		handles[o.Dir+o.ID] = l
		return answer{Epoch: l.Epoch(), ClaimID: l.ClaimID()}
	case "inspect":
		info, err := s.Inspect(o.ID)
		if err != nil {
			return told(err)
		}
		v := info.Verdict
		return answer{
			State: v.State.String(), Cause: v.Cause, Sentence: v.Sentence, When: v.Claimable.When.String(),
			Flags: v.Flags.Strings(), Left: time.Until(v.Claimable.At), Epoch: info.Epoch,
		}
	case "break":
		info, err := s.Inspect(o.ID)
		if err != nil {
			return told(err)
		}
		return told(s.Break(ctx, info, Removal{Reason: "told to", Force: o.Force, Log: &audit.Log{Path: o.Log}}))
	case "restore":
		log := &audit.Log{Path: o.Log}
		e, _, err := log.LastAct(s.path(o.ID, leaseSuffix))
		if err != nil {
			return told(err)
		}
		return told(s.Restore(ctx, e, Removal{Reason: "told to", Log: log}))
	case "look-up":
		h, err := s.LiveHolder(o.ID, o.Claimant.Owner)
		if err != nil || h == nil {
			return told(err)
		}
		return answer{HolderPID: h.PID}
	}
	if held == nil {
		return told(errors.New("nothing is held"))
	}
	switch o.Do {
	case "renew":
		return told(held.Renew(ctx))
	case "verify":
		return told(held.Verify(ctx))
	case "release":
		return told(held.Release())
	default:
		return told(fmt.Errorf("nobody knows how to %s", o.Do))
	}
}

var sentinels = map[string]error{
	"bad id": ErrBadID, "held": ErrHeld, "lost": ErrLost, "busy": ErrBusy, "epoch": ErrEpoch, "unreadable": ErrUnreadable,
	"read-only": ErrReadOnly, "holder alive": ErrHolderAlive, "denied": os.ErrPermission, "deadline": context.DeadlineExceeded,
	"changed": ErrChanged, "not yet": ErrNotYet, "no reason": ErrNoReason, "audit": ErrAudit,
}

func told(err error) answer {
	if err == nil {
		return answer{}
	}
	a := answer{Err: err.Error(), Is: is(err)}
	if e, ok := errors.AsType[*ConflictError](err); ok {
		a.Op, a.Sentence, a.State = e.Op, e.Verdict.Sentence, e.Verdict.State.String()
		if e.Holder != nil {
			a.HolderPID = e.Holder.PID
		}
	}
	return a
}

func is(err error) []string {
	var names []string
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// child is another process of the test binary.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// startChild starts a child, below the command in wrap if there is one.
func startChild(t *testing.T, wrap ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(slices.Clone(wrap), exe)
	return runChild(t, exec.CommandContext(t.Context(), argv[0], argv[1:]...))
}

func runChild(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)}
	t.Cleanup(c.kill)
	return c
}

// kill ends the child and waits for its end; it may be called again.
func (c *child) kill() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) send(o order) {
	c.t.Helper()
	if err := c.enc.Encode(o); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) receive() answer {
	c.t.Helper()
	var a answer
	if err := c.dec.Decode(&a); err != nil {
		c.t.Fatal("the child says nothing: ", err)
	}
	return a
}

// dies waits for the child to end by itself.
func (c *child) dies() {
	c.t.Helper()
	var a answer
	if err := c.dec.Decode(&a); err == nil {
		c.t.Fatalf("the child lives on and says %+v", a)
	}
	_ = c.cmd.Wait()
}

func (c *child) call(o order) answer {
	c.t.Helper()
	c.send(o)
	return c.receive()
}

// claim is a claim that must be granted.
func (c *child) claim(dir, id string, who Claimant) answer {
	c.t.Helper()
	a := c.call(order{Do: "claim", Dir: dir, ID: id, Claimant: who})
	if a.Err != "" {
		c.t.Fatal(a.Err)
	}
	return a
}

// unable skips a test that this machine cannot run; where everything must run, it fails instead.
func unable(tb testing.TB, why ...any) {
	tb.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		tb.Fatal(why...)
	}
	tb.Skip(why...)
}
