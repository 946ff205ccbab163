package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/redisd"
)

const (
	primaries   = 3
	slots       = 16384
	clusterTime = 30 * time.Second // for the nodes to agree
)

// startCluster starts a Redis Cluster of three primaries without replicas on free ports of the
// loopback interface. It returns the first one, which knows the others, when all of them serve all
// slots.
func startCluster(ctx context.Context) (*server, error) {
	var nodes []*server
	var err error
	for err == nil && len(nodes) < primaries {
		var node *server
		if node, err = startNode(ctx, nodes); err == nil {
			nodes = append(nodes, node)
		}
	}
	if err == nil {
		nodes[0].others = nodes[1:]
		err = nodes[0].settle(ctx)
	}
	if err == nil {
		return nodes[0], nil
	}
	for _, node := range nodes {
		node.others = nil
		node.close()
	}
	return nil, fmt.Errorf("bench: no Redis Cluster: %w", err)
}

// startNode starts a node, assigns its slots, and introduces it to the first node.
func startNode(ctx context.Context, before []*server) (*server, error) {
	bus, err := redisd.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, busPort, _ := net.SplitHostPort(bus)
	node, err := startServer(ctx, "", "--cluster-enabled", "yes", "--cluster-port", busPort)
	if err != nil {
		return nil, err
	}
	i := len(before)
	err = errors.Join(
		node.admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
		node.admin.ClusterAddSlotsRange(ctx, slots*i/primaries, slots*(i+1)/primaries-1).Err(),
	)
	if i > 0 {
		host, port, _ := net.SplitHostPort(node.addr)
		err = errors.Join(err, before[0].admin.Do(ctx, "CLUSTER", "MEET", host, port, busPort).Err())
	}
	if err != nil {
		node.close()
		return nil, err
	}
	return node, nil
}

// settle waits until the nodes agree.
func (s *server) settle(ctx context.Context) error {
	for until := time.Now().Add(clusterTime); ; {
		err := s.agreed(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// agreed returns nil if every node sees all slots served by all primaries.
func (s *server) agreed(ctx context.Context) error {
	for _, node := range s.nodes() {
		info, err := node.admin.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d\r", slots), fmt.Sprintf("cluster_size:%d\r", primaries)} {
			if !strings.Contains(info, want) {
				return fmt.Errorf("%s does not report %q", node.addr, want)
			}
		}
	}
	return nil
}

// nodes returns s and the other servers.
func (s *server) nodes() []*server { return append([]*server{s}, s.others...) }

// nodeAddrs returns the addresses of all servers, or nil for a single one.
func (s *server) nodeAddrs() []string {
	if len(s.others) == 0 {
		return nil
	}
	var addrs []string
	for _, node := range s.nodes() {
		addrs = append(addrs, node.addr)
	}
	return addrs
}
