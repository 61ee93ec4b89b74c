package audit

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"
)

// schema is the version of a line. Keys are only ever added.
const schema = 1

// wire is an entry as it stands in the file. Bytes that JSON text cannot carry are in base 64 under a key of their
// own, beside the nearest text where a person wants to read it.
type wire struct {
	Schema    int     `json:"schema"`
	TimeMS    int64   `json:"time_ms"`
	Action    string  `json:"action"`
	Kind      string  `json:"kind,omitempty"`
	Path      string  `json:"path"`
	PathB64   string  `json:"path_b64,omitempty"`
	ID        string  `json:"id,omitempty"`
	IDB64     string  `json:"id_b64,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Who       wireWho `json:"who"`
	EpochOld  uint64  `json:"epoch_old,omitempty"`
	EpochNew  uint64  `json:"epoch_new,omitempty"`
	Nonce     string  `json:"nonce,omitempty"`
	Before    *string `json:"before,omitempty"`
	BeforeB64 *string `json:"before_b64,omitempty"`
	Found     string  `json:"found,omitempty"`
}

type wireWho struct {
	UID  int    `json:"uid"`
	User string `json:"user,omitempty"`
	PID  int    `json:"pid"`
	Host string `json:"host,omitempty"`
}

// MarshalJSON writes an entry as it stands in the log.
func (e Entry) MarshalJSON() ([]byte, error) { return json.Marshal(newWire(&e)) }

func newWire(e *Entry) wire {
	w := wire{
		Schema: schema, TimeMS: e.Time.UnixMilli(), Action: e.Action, Kind: e.Kind, Path: e.Path, PathB64: inexact(e.Path),
		ID: e.ID, IDB64: inexact(e.ID), Reason: e.Reason, Who: wireWho(e.Who), EpochOld: e.EpochOld, EpochNew: e.EpochNew,
		Nonce: e.Nonce, Found: e.Found,
	}
	switch {
	case e.Before == nil:
	case utf8.Valid(e.Before):
		w.Before = new(string(e.Before))
	default:
		w.BeforeB64 = new(base64.StdEncoding.EncodeToString(e.Before))
	}
	return w
}

// decode reads a line. Keys that it does not know are from a later program, and skipped.
func decode(line []byte) (Entry, error) {
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return Entry{}, err
	}
	e := Entry{
		Time: time.UnixMilli(w.TimeMS), Action: w.Action, Path: w.Path, Kind: w.Kind, ID: w.ID, Reason: w.Reason, Who: Who(w.Who),
		Found: w.Found, EpochOld: w.EpochOld, EpochNew: w.EpochNew, Nonce: w.Nonce,
	}
	var errs [3]error
	if w.PathB64 != "" {
		e.Path, errs[0] = exact(w.PathB64)
	}
	if w.IDB64 != "" {
		e.ID, errs[1] = exact(w.IDB64)
	}
	switch {
	case w.Before != nil:
		e.Before = []byte(*w.Before)
	case w.BeforeB64 != nil:
		e.Before, errs[2] = base64.StdEncoding.DecodeString(*w.BeforeB64)
	}
	if e.Action == "" || e.Path == "" {
		return Entry{}, errors.New("it names no action or no path")
	}
	return e, errors.Join(errs[:]...)
}

func inexact(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

func exact(b64 string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(b64)
	return string(b), err
}
