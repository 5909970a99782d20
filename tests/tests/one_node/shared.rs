//! The scene that all tests of this program share: it takes seconds to make and a processor to run. Made by the test that
//! comes first, and gone when the program ends.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::{Result, bail};
use tests::{requires, sys};

use crate::scene::Scene;

static STATE: Mutex<State> = Mutex::new(State::New);

enum State {
    New,
    Up(Shared),
    /// It did not start, which the first test told at length.
    Failed,
}

/// The scene, for a test.
#[derive(Clone)]
pub(crate) struct Shared(Arc<RwLock<Scene>>);

impl Shared {
    /// `None` when the machine lacks what is needed, which was said then.
    pub(crate) fn get(test: &str) -> Result<Option<Self>> {
        let Some(assets) = requires::one_node(test) else {
            return Ok(None);
        };
        let mut state = state();
        match &*state {
            State::Up(shared) => return Ok(Some(shared.clone())),
            State::Failed => bail!("the cluster did not start: see the other tests"),
            State::New => {}
        }
        *state = State::Failed;
        let shared = Self(Arc::new(RwLock::new(Scene::new(&assets)?)));
        *state = State::Up(shared.clone());
        sys::at_exit(end);
        Ok(Some(shared))
    }

    /// For a test that goes well beside others. To be held once by a test.
    pub(crate) fn beside_others(&self) -> RwLockReadGuard<'_, Scene> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a test that stops or replaces what others use, or that needs the whole machine.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, Scene> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody else would: statics are not dropped.
extern "C" fn end() {
    drop(mem::replace(&mut *state(), State::New));
}
