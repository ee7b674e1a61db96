# The README's commands. Cargo alone builds and tests everything but what needs a real Kubernetes API server.

.DELETE_ON_ERROR:
.PHONY: test kube-assets

KUBE_ASSETS_MODULE := hack/kube-assets
version = $(shell awk '$$1 == "$(1)" { print $$2; exit }' $(KUBE_ASSETS_MODULE)/go.mod)
KUBE_VERSION := $(call version,k8s.io/kubernetes)
ETCD_VERSION := $(call version,go.etcd.io/etcd/server/v3)
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)
KUBE_ASSETS := $(CACHE)/muster/kube-assets/kubernetes-$(KUBE_VERSION)-etcd-$(ETCD_VERSION)

# A real Kubernetes API server for the tests that want one: binaries of one's own, or else built with Go.
ifeq ($(KUBEBUILDER_ASSETS),)
ifneq ($(shell command -v go),)
test: kube-assets
export KUBEBUILDER_ASSETS := $(KUBE_ASSETS)
endif
endif

# All tests. Without Go the real-server tests say that they are skipped, and why.
test:
	cargo test --workspace

# kube-apiserver, its controllers and etcd, built once for each pair of versions and kept outside the tree.
kube-assets: $(KUBE_ASSETS)/kube-apiserver $(KUBE_ASSETS)/kube-controller-manager $(KUBE_ASSETS)/etcd

GO_BUILD = CGO_ENABLED=0 go build -C $(KUBE_ASSETS_MODULE) -mod=readonly -buildvcs=false -trimpath

# Written under another name first: an interrupted build leaves nothing that looks whole.
$(KUBE_ASSETS)/kube-apiserver $(KUBE_ASSETS)/kube-controller-manager:
	mkdir -p $(@D)
	$(GO_BUILD) -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION)" -o $@.new k8s.io/kubernetes/cmd/$(@F)
	mv $@.new $@

$(KUBE_ASSETS)/etcd:
	mkdir -p $(@D)
	$(GO_BUILD) -ldflags "-s -w" -o $@.new go.etcd.io/etcd/server/v3
	mv $@.new $@
