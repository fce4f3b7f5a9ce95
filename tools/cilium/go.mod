// Cilium's Helm chart is taken out of its module; nothing of it is built, so `go mod tidy` must not be run here.
module inference-platform/tools/cilium

go 1.26.0

require github.com/cilium/cilium v1.20.2
