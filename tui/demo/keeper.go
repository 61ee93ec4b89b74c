package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// patience is how long a child has that must reap a child of its own before it goes.
const patience = 2 * time.Second

// keep makes the playground, reports where it is and when it is ready, and keeps it until ctx ends. Then it ends all
// processes and removes the directory.
func keep(ctx context.Context, nonce string, names []string) (err error) {
	// SIGPIPE comes from a report to a parent that is gone. Unhandled it would end us before we cleaned up.
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer cancel()

	root, err := makeGround(nonce)
	if err != nil {
		return err
	}
	say("root", root)
	var crew crew
	defer func() {
		cancel()
		crew.Wait()
		if left := removeGround(root, nonce); err == nil {
			err = left
		}
	}()
	if err := layOut(root, names); err != nil {
		return err
	}
	if err := crew.start(ctx, root, names); err != nil {
		return err
	}
	say("ready", "")
	<-ctx.Done()
	return nil
}

// crew are the keeper's children. Each is waited for as soon as it runs, so that one that a person kills is really
// gone, and none is signalled after that.
type crew struct{ sync.WaitGroup }

// hand is one child that is being started.
type hand struct {
	scene   scene
	cmd     *exec.Cmd
	reports *os.File
}

// start starts one child for each scenario, all at once, and returns when all stand as they should. They live until
// ctx ends.
func (c *crew) start(ctx context.Context, root string, names []string) error {
	var hands []*hand
	var failed error
	for _, name := range names {
		h := &hand{}
		if failed = h.start(ctx, root, name); failed != nil {
			failed = fmt.Errorf("scenario %s: %w", name, failed)
			break
		}
		hands = append(hands, h)
	}
	for _, h := range hands {
		// Also after a failure: every child that was started is waited for.
		if err := h.settle(ctx); err != nil && failed == nil {
			failed = fmt.Errorf("scenario %s: %w", h.scene.Name, err)
		}
		c.Go(func() { _ = h.cmd.Wait() })
	}
	return failed
}

func (h *hand) start(ctx context.Context, root, name string) (err error) {
	if h.scene, err = find(name); err != nil {
		return err
	}
	lifeline, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lifeline.Close()
	reports, theirs, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return err
	}
	defer theirs.Close()
	h.cmd, err = command(ctx, holderVerb, root, name)
	if err == nil {
		h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = lifeline, theirs, theirs
		h.cmd.Cancel = func() error {
			if err := ours.Close(); h.scene.reaps {
				return err
			}
			return h.cmd.Process.Kill()
		}
		h.cmd.WaitDelay = patience
		tether(h.cmd)
		err = h.cmd.Start()
	}
	if err != nil {
		_, _ = ours.Close(), reports.Close()
		return err
	}
	h.reports = reports
	return nil
}

// settle waits until the child has laid its entries down and brings it into its condition.
func (h *hand) settle(ctx context.Context) error {
	defer h.reports.Close()
	if _, err := listen(h.reports); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch h.scene.fate {
	case stopped:
		return stop(h.cmd.Process)
	case killed:
		if err := h.cmd.Process.Kill(); err != nil {
			return err
		}
		_ = h.cmd.Wait() // it tells of the signal
	case leaves:
		return h.cmd.Wait()
	case stays:
	}
	return nil
}

// layOut makes the directories of AgentMux and AFT, and the files that tell what the hashed keys stand for.
func layOut(root string, names []string) error {
	for _, dir := range []string{leasesDir, "index", "inspect", "callgraph", "semantic"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return err
		}
	}
	for _, name := range names {
		dir := filepath.Join(root, "artifact-owners", key(name))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		owner := fmt.Sprintf("{\"checkout_path\":%q}\n", checkout(name))
		if err := os.WriteFile(filepath.Join(dir, "owner.json"), []byte(owner), 0o600); err != nil {
			return err
		}
	}
	return nil
}
