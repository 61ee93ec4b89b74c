package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/sweep"
	"holdfast/tui/text"
)

// tellPlan prints the plan, whether or not it can be carried out.
func (b *breaking) tellPlan(w io.Writer, p *breakPlan) {
	st, seen := b.style(), p.seen
	title := p.target.String()
	if p.name != "" && p.name != p.target.id {
		title += " (" + p.name + ")"
	}
	fmt.Fprintf(w, "plan: break %s\n", st.Safe(title))
	words := shortenerOf(st, &seen.Entry)
	sentence := seen.Verdict.Sentence
	if seen.token != nil && sweep.LockOf(p.target.path) == "" {
		sentence = strings.Replace(sentence, ": cleared by the next attempt", "", 1) // nobody makes one there
	}
	b.line(w, "now", "%s. %s", text.Word(seen.Verdict.State), words.Replace(sentence))
	if seen.missing() {
		return
	}
	if h := seen.Holder(); h != nil {
		b.line(w, "holder", "%s", words.Replace(b.holder(h, seen.Seen().Look)))
	}
	if p.never != nil {
		if p.repair != "" {
			b.line(w, "repair", "%s", p.repair)
		}
		return
	}
	if p.nonce != "" {
		b.line(w, "compared", "nonce %s, once more directly before it is removed", p.nonce)
		b.line(w, "", "its bytes are %s", p.sum)
	} else {
		b.line(w, "compared", "its bytes, for the record has no nonce: %s", p.sum)
	}
	if seen.lock != nil && seen.Verdict.State == verdict.Expired {
		b.line(w, "watched", "16s before anything is done, less for what --observe has seen: three heartbeats")
	}
	b.line(w, "removed", "%s", p.target.path)
	if seen.lease != nil {
		b.line(w, "stays", "%s", b.stays(p))
	}
	for i, line := range p.dies {
		head := "dies"
		if i > 0 {
			head = ""
		}
		b.line(w, head, "%s", words.Replace(line))
	}
	file, err := b.log.File()
	if err != nil {
		file = "the audit log, for which there is no place: " + err.Error()
	}
	b.line(w, "first", "a line in %s: who, why, and the whole record", file)
	switch {
	case seen.token != nil:
	case seen.lease != nil && seen.lease.Facts.Record == nil:
		b.line(w, "undo", "none: what cannot be read is not put back, but its bytes are in that line")
	default:
		b.line(w, "undo", "%s", b.verbOn("break", &p.target, "--undo"))
	}
	b.line(w, "run", "%s", p.run)
}

// stays says what the next owner's epoch will be.
func (b *breaking) stays(p *breakPlan) string {
	facts := p.seen.lease.Facts
	next, refusal := facts.NextEpoch()
	epoch := "`" + b.onID("epoch", p.target.id) + "`"
	switch {
	case refusal == "":
		return fmt.Sprintf("its epoch counter: the next owner gets %d", next)
	case isDirectory(&facts.Counter):
		return refusal + ": no claim is granted before what is in its place was moved away; " + epoch + " tells of it"
	default:
		return refusal + ": no claim is granted before " + epoch + " repairs it"
	}
}

func (b *breaking) holder(h *verdict.Holder, now time.Time) string {
	who := fmt.Sprintf("pid %d on %s", h.PID, orWord(h.Host, "an unknown host"))
	if h.Channel != "" || h.Version != "" {
		who += fmt.Sprintf(", channel %s, version %s", orWord(h.Channel, "unknown"), orWord(h.Version, "unknown"))
	}
	if h.Epoch > 0 {
		who += fmt.Sprintf(", epoch %d", h.Epoch)
	}
	if !h.Acquired.IsZero() {
		who += ", for " + text.Long(verdict.Age(h.Acquired, now))
	}
	return who
}

func orWord(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// dies says what becomes of whoever has it.
func (b *breaking) dies(ctx context.Context, sight *sight, p *breakPlan) []string {
	seen := p.seen
	finding := seen.Seen().Proc
	switch {
	case seen.lease != nil:
		return b.leaseDies(ctx, sight, p)
	case seen.token != nil:
		if p.needs == needsYes {
			return []string{"nobody: an attempt on its lock would clear it"}
		}
		if finding.Answer == proc.Dead {
			return []string{"nobody: its maker is gone"}
		}
		return []string{fmt.Sprintf("nobody; but if its maker is at work on %s, two remove it at once, and a lock that a third one has "+
			"just taken can go with it", seen.LockOf)}
	case seen.unreadable() && !seen.Seen().Problem.Torn:
		return []string{"nobody can be named: what is there is no lock's record, and perhaps another program's file"}
	case seen.unreadable():
		return []string{"nobody can be named: the record does not say whose it is"}
	case finding.Answer == proc.Dead:
		return []string{"nobody: its holder is gone"}
	case finding.Answer == proc.Alive:
		return []string{fmt.Sprintf("nobody is killed: pid %d learns of it at its next heartbeat at the earliest; till then, and if it does not "+
			"look, it and the next holder write at the same time", finding.PID)}
	default:
		return []string{"nobody is killed; if its holder still runs, it and the next one write at the same time"}
	}
}

func (b *breaking) leaseDies(ctx context.Context, sight *sight, p *breakPlan) []string {
	facts := p.seen.lease.Facts
	switch {
	case facts.Record == nil:
		return []string{"nobody can be named: the record does not say whose it is; an agent that runs under it is ended within 5s"}
	case facts.Proc.Answer == proc.Dead:
		return []string{"nobody: its holder is gone"}
	}
	agent, pid := p.name, facts.Record.PID
	if agent == "" {
		agent = p.target.id
	}
	maybe := ""
	if facts.Proc.Answer != proc.Alive {
		maybe = "if its holder still runs, "
	}
	if facts.Record.Ours.TimeNS != 0 || facts.Record.Ours.KernelBootID != "" {
		return []string{fmt.Sprintf("nobody is killed: %spid %d learns at its next renewal, within 5s, that it is lost", maybe, pid)}
	}
	server := fmt.Sprintf("pid %d is the AgentMux server, which is not killed", pid)
	if infos, err := sight.store(filepath.Dir(facts.Path)).List(ctx); err == nil {
		held := 0
		for i := range infos {
			if r := infos[i].Facts.Record; r != nil && r.PID == pid && strings.EqualFold(r.Hostname, facts.Record.Hostname) {
				held++
			}
		}
		server = fmt.Sprintf("pid %d is the AgentMux server and holds %s; it is not killed", pid, text.Count(held, "lease"))
	}
	return []string{maybe + "this ends the agent " + agent + " within 5s: AgentMux kills its process when its lease is gone", server}
}
