package main

import (
	"context"
	"sync"
)

// Bodies that are read at once, and those of one tenant among them: no tenant keeps others from being read.
const (
	mostRead       = 16
	mostReadTenant = 4
)

// turns are given to all tenants, and to each of them.
type turns struct {
	all chan struct{}

	mutex sync.Mutex
	own   map[string]*turn
}

// turn is of one tenant, for as long as a body of it is read or waits.
type turn struct {
	taken chan struct{}
	users int
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, mostRead), own: map[string]*turn{}}
}

// begin waits for the tenant's own turn before it queues with others.
func (t *turns) begin(ctx context.Context, tenant string) (end func(), err error) {
	own := t.of(tenant)
	for _, taken := range []chan struct{}{own.taken, t.all} {
		select {
		case taken <- struct{}{}:
		case <-ctx.Done():
			if taken == t.all {
				<-own.taken
			}
			t.left(tenant)
			return nil, ctx.Err()
		}
	}
	return func() {
		<-t.all
		<-own.taken
		t.left(tenant)
	}, nil
}

func (t *turns) of(tenant string) *turn {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	own := t.own[tenant]
	if own == nil {
		own = &turn{taken: make(chan struct{}, mostReadTenant)}
		t.own[tenant] = own
	}
	own.users++
	return own
}

func (t *turns) left(tenant string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if own := t.own[tenant]; own.users == 1 {
		delete(t.own, tenant)
	} else {
		own.users--
	}
}
